/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package ring

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string][2]string{
		"":                          {"", ""},
		"workloads-x7k2p → é ≤ 漢 ￿": {"workloads-x7k2p → é ≤ 漢 \\uffff", "workloads-x7k2p → é ≤ 漢 \\uffff"},
		"�":                         {"�", "�"},
		"a\nb\tc\r":                 {`a\nb\tc\r`, "a\nb\tc\\r"},
		"\x1b[2J\x07\x7f\x00":       {`\u001b[2J\u0007\u007f\u0000`, `\u001b[2J\u0007\u007f\u0000`},
		// One rune that begins a control sequence, as ESC and [ do.
		"\u009b31m": {`\u009b31m`, `\u009b31m`},
		// What turns the direction of writing, or is not seen.
		"\u202egnp.exe\u2066\u200b\ufeff": {`\u202egnp.exe\u2066\u200b\ufeff`, `\u202egnp.exe\u2066\u200b\ufeff`},
		"\u2028\u00a0":                    {`\u2028\u00a0`, `\u2028\u00a0`},
		"\U000e0041":                      {`\udb40\udc41`, `\udb40\udc41`},
		"a\xff\x9b":                       {`a\xff\x9b`, `a\xff\x9b`},
		`a\u001b\xff`:                     {`a\u001b\xff`, `a\u001b\xff`},
	} {
		if got := Printable(in); got != want[0] || Printable(got) != got {
			t.Errorf("%q is shown as %q, want %q", in, got, want[0])
		}
		if got := PrintableLines(in); got != want[1] {
			t.Errorf("%q in lines is shown as %q, want %q", in, got, want[1])
		}
	}
}

func FuzzPrintableJSONMeansTheSame(f *testing.F) {
	f.Add("\x1b[2J\u202e\U000e0041\u009b\n\t")
	f.Fuzz(func(t *testing.T, text string) {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		shown := PrintableLines(string(data))
		var want, got string
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(shown), &got); err != nil || got != want || !utf8.ValidString(shown) {
			t.Errorf("%s is shown as %s, which means %q, %v; want %q", data, shown, got, err, want)
		}
	})
}
