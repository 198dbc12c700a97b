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
	"debug/buildinfo"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"
)

const noAssertion = "NOASSERTION"

func sbomPath(name, platform string) string {
	return fmt.Sprintf("sbom/%s-%s.spdx.json", name, dashed(platform))
}

// writeSBOM writes which modules a binary was built from, as SPDX. The binary says so itself.
func (r *release) writeSBOM(name, platform string) error {
	binary := r.binary(name, platform)
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	sum, err := hashFile(binary)
	if err != nil {
		return err
	}
	doc, err := r.sbom(name, platform, sum, info)
	if err != nil {
		return err
	}
	return create(filepath.Join(r.out, sbomPath(name, platform)), func(out io.Writer) error {
		return spdxjson.Write(doc, out, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
	})
}

func (r *release) sbom(name, platform, sum string, info *buildinfo.BuildInfo) (*spdx.Document, error) {
	doc := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      name + " " + r.Version + " for " + platform,
		DocumentNamespace: "https://spdx.org/spdxdocs/ringmaster/" + r.tag() + "/" + name + "-" + dashed(platform) + "-" + sum,
		CreationInfo: &spdx.CreationInfo{
			Created:  r.Date.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "ringmaster-release"}},
		},
	}
	add := func(p *spdx.Package, to, how string) {
		p.PackageDownloadLocation, p.PackageCopyrightText = noAssertion, noAssertion
		p.PackageLicenseConcluded = noAssertion
		if p.PackageLicenseDeclared == "" {
			p.PackageLicenseDeclared = noAssertion
		}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA:         common.MakeDocElementID("", to),
			RefB:         common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
			Relationship: how,
		})
	}
	add(&spdx.Package{
		PackageName:            name,
		PackageSPDXIdentifier:  "Binary",
		PackageVersion:         r.Version,
		PackageFileName:        name,
		PackageLicenseDeclared: "Apache-2.0",
		PrimaryPackagePurpose:  "APPLICATION",
		PackageChecksums:       []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
	}, "DOCUMENT", common.TypeRelationshipDescribe)
	modules := append([]*debug.Module{&info.Main}, info.Deps...)
	modules = append(modules, &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		version := r.moduleVersion(m)
		p := &spdx.Package{
			PackageName:           m.Path,
			PackageSPDXIdentifier: common.ElementID("Module-" + notInID.ReplaceAllString(m.Path, "-")),
			PackageVersion:        version,
			PrimaryPackagePurpose: "LIBRARY",
			PackageExternalReferences: []*spdx.PackageExternalReference{{
				Category: common.CategoryPackageManager,
				RefType:  common.TypePackageManagerPURL,
				Locator:  "pkg:golang/" + strings.ToLower(m.Path) + "@" + strings.ReplaceAll(version, "+", "%2B"),
			}},
		}
		if m.Sum != "" {
			p.PackageComment = "go.sum: " + m.Sum
		}
		add(p, "Binary", common.TypeRelationshipContains)
	}
	return doc, spdxlib.ValidateDocument(doc)
}

// notInID is what an identifier of SPDX cannot have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// moduleVersion is the version of a module. Those that lie in the tree beside the main one say
// none; upstream releases them with v0 in place of v1.
func (r *release) moduleVersion(m *debug.Module) string {
	if m.Version == "(devel)" && strings.HasPrefix(m.Path, "k8s.io/") {
		return "v0." + strings.TrimPrefix(r.Upstream, "v1.")
	}
	return m.Version
}
