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

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAPictureHasWhatWasPrinted(t *testing.T) {
	picture := draw([]step{{"kubectl ring | head -n 2 > /dev/null", ""}, {"kubectl ring", "NAME    SHARE\na & b   <█████>  \n\nlast"}})
	for _, want := range []string{
		`<tspan class="command">kubectl ring | head -n 2 &gt; /dev/null</tspan>`,
		`>NAME    SHARE</text>`, `>a &amp; b   &lt;█████&gt;</text>`, `>last</text>`,
	} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture has no %s:\n%s", want, picture)
		}
	}
	var texts int
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" {
			texts++
		}
	}
	if texts != 5 {
		t.Errorf("the picture has %d lines, want 5", texts)
	}
	// The widest line sets the width.
	if !strings.Contains(draw([]step{{"x", strings.Repeat("█", 100)}}), `viewBox="0 0 827 `) {
		t.Error("100 columns are not as wide as they should be")
	}
}
