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
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns a text that others have written as people may see it, in a terminal, too: on
// one line, and without what controls a terminal or the direction of writing. What is not printable
// is escaped as JSON does it, such as \n or \u001b, and a byte that is not UTF-8 as \xff. All else
// stays as it is, so what is printable already does not change.
func Printable(text string) string { return escape(text, "") }

// PrintableLines is Printable for a text of several lines: line ends and tabs stay. Of JSON it
// makes JSON that means the same.
func PrintableLines(text string) string { return escape(text, "\n\t") }

// escape escapes what is not printable and not one of these runes.
func escape(text, but string) string {
	allowed := func(r rune) bool { return unicode.IsPrint(r) || strings.ContainsRune(but, r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !allowed(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch high, low := utf16.EncodeRune(r); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case allowed(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case high == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}
