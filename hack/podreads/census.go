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
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"
)

// A census finds what functions read of pods.
type census struct {
	fset *token.FileSet
	// tracked are the structs of which each selected field counts, carriers what leads to them in
	// other ways than by holding them. They go by import path and name.
	tracked, carriers map[string]bool
	// exempt are the functions that are not looked into, by full name.
	exempt map[string]exemption
	// functions has all that are known in source.
	functions map[string]function
	// methods has them by their bare names.
	methods map[string][]*types.Func
	// leading remembers which types lead to a pod.
	leading map[types.Type]bool
	// met are the exempt functions that were met.
	met map[string]bool
}

// An exemption says why a function is not looked into, and which is looked into instead.
type exemption struct{ why, instead string }

type function struct {
	name string
	body ast.Node
	info *types.Info
}

// A found has what is read, by whom, and where. A field goes by the names of its struct and its
// own, as in PodSpec.NodeName. A function that is not known in source and gets a pod is read, too,
// and goes by its full name.
type found map[string]map[string]token.Position

func (f found) add(what, by string, at token.Position) {
	if f[what] == nil {
		f[what] = map[string]token.Position{}
	}
	f[what][by] = at
}

func newCensus(pkgs []*packages.Package, tracked, carriers []string, exempt map[string]exemption) *census {
	c := &census{
		tracked: map[string]bool{}, carriers: map[string]bool{}, exempt: exempt,
		functions: map[string]function{}, methods: map[string][]*types.Func{},
		leading: map[types.Type]bool{}, met: map[string]bool{},
	}
	for _, name := range tracked {
		c.tracked[name] = true
	}
	for _, name := range carriers {
		c.carriers[name] = true
	}
	for _, pkg := range pkgs {
		c.fset = pkg.Fset
		for _, file := range pkg.Syntax {
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				fn := pkg.TypesInfo.Defs[f.Name].(*types.Func)
				c.functions[fn.FullName()] = function{fn.FullName(), f.Body, pkg.TypesInfo}
				if f.Recv != nil {
					c.methods[fn.Name()] = append(c.methods[fn.Name()], fn)
				}
			}
		}
	}
	return c
}

// rootsOf returns all functions of a package, and what its variables are made of.
func (c *census) rootsOf(pkg *packages.Package) []function {
	var roots []function
	for _, file := range pkg.Syntax {
		for _, decl := range file.Decls {
			name := pkg.PkgPath
			if f, ok := decl.(*ast.FuncDecl); ok {
				fn := pkg.TypesInfo.Defs[f.Name].(*types.Func)
				if c.skips(fn) {
					continue
				}
				name = fn.FullName()
			}
			roots = append(roots, function{name, decl, pkg.TypesInfo})
		}
	}
	return roots
}

func (c *census) skips(fn *types.Func) bool {
	_, exempt := c.exempt[fn.FullName()]
	if exempt {
		c.met[fn.FullName()] = true
	}
	return exempt
}

// read returns what the roots read, and all functions that they call or mention. Behind the method
// of an interface may be any in those packages that in holds.
func (c *census) read(roots []function, in map[string]bool) found {
	reads := found{}
	seen := map[string]bool{}
	called := map[*ast.Ident]bool{}
	for queue := roots; len(queue) > 0; {
		next := queue[0]
		queue = queue[1:]
		ast.Inspect(next.body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				c.selects(next, n, reads)
			case *ast.CallExpr:
				c.passes(next, n, in, reads)
				called[identifier(n.Fun)] = true
			case *ast.Ident:
				fn, ok := next.info.Uses[n].(*types.Func)
				if !ok {
					break
				}
				if !called[n] && !c.known(fn, in) && c.takes(fn) {
					reads.add(fn.FullName(), next.name, c.fset.Position(n.Pos()))
				}
				for _, target := range c.targets(fn, in) {
					name := target.FullName()
					if c.skips(target) {
						name = c.exempt[name].instead
					}
					if known, ok := c.functions[name]; ok && !seen[name] {
						seen[name] = true
						queue = append(queue, known)
					}
				}
			}
			return true
		})
	}
	return reads
}

// selects notes the fields of tracked structs on the way of a selector, embedded ones included.
func (c *census) selects(by function, selector *ast.SelectorExpr, reads found) {
	selection := by.info.Selections[selector]
	if selection == nil || selection.Kind() != types.FieldVal {
		return
	}
	from := selection.Recv()
	for _, i := range selection.Index() {
		structure, ok := deref(from).Underlying().(*types.Struct)
		if !ok {
			return
		}
		field := structure.Field(i)
		if named, ok := types.Unalias(deref(from)).(*types.Named); ok && c.tracked[typeName(named)] {
			reads.add(named.Obj().Name()+"."+field.Name(), by.name, c.fset.Position(selector.Sel.Pos()))
		}
		from = field.Type()
	}
}

// passes notes a call of a function that is not known in source, with a pod or what leads to pods
// among the arguments, the receiver included.
func (c *census) passes(by function, call *ast.CallExpr, in map[string]bool, reads found) {
	if by.info.Types[call.Fun].IsType() {
		return
	}
	// The body of a function value is looked into where it is written down.
	callee := identifier(call.Fun)
	of, ok := by.info.Uses[callee].(*types.Func)
	if callee == nil || !ok || c.known(of, in) {
		return
	}
	args := call.Args
	if method, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && by.info.Selections[method] != nil && c.tracked[typeName(by.info.TypeOf(method.X))] {
		args = append([]ast.Expr{method.X}, args...)
	}
	for _, arg := range args {
		if c.leads(by.info.TypeOf(arg)) {
			reads.add(of.FullName(), by.name, c.fset.Position(call.Pos()))
			return
		}
	}
}

// identifier returns the name of what is called, or nil where it has none.
func identifier(fun ast.Expr) *ast.Ident {
	switch fun := ast.Unparen(fun).(type) {
	case *ast.Ident:
		return fun
	case *ast.SelectorExpr:
		return fun.Sel
	case *ast.IndexExpr:
		return identifier(fun.X)
	case *ast.IndexListExpr:
		return identifier(fun.X)
	}
	return nil
}

// takes says whether a function has a parameter, or a receiver, that leads to a pod.
func (c *census) takes(fn *types.Func) bool {
	if receiver := fn.Signature().Recv(); receiver != nil && c.tracked[typeName(receiver.Type())] {
		return true
	}
	return c.leads(fn.Signature().Params())
}

// leads says whether a value of a type holds, or is known to lead to, a tracked struct.
func (c *census) leads(t types.Type) bool {
	t = types.Unalias(t)
	if leads, known := c.leading[t]; known {
		return leads
	}
	// A type that holds itself leads where the rest of it does.
	c.leading[t] = false
	leads := false
	switch t := t.(type) {
	case *types.Named:
		leads = c.tracked[typeName(t)] || c.carriers[typeName(t)]
		for i := range t.TypeArgs().Len() {
			leads = leads || c.leads(t.TypeArgs().At(i))
		}
		if _, isInterface := t.Underlying().(*types.Interface); !isInterface {
			leads = leads || c.leads(t.Underlying())
		}
	case *types.Tuple:
		for v := range t.Variables() {
			leads = leads || c.leads(v.Type())
		}
	case *types.Struct:
		for field := range t.Fields() {
			leads = leads || c.leads(field.Type())
		}
	case *types.Map:
		leads = c.leads(t.Key()) || c.leads(t.Elem())
	case interface{ Elem() types.Type }:
		leads = c.leads(t.Elem())
	}
	c.leading[t] = leads
	return leads
}

// known says whether each function that fn may be is known in source, or exempt.
func (c *census) known(fn *types.Func, in map[string]bool) bool {
	for _, target := range c.targets(fn, in) {
		_, known := c.functions[target.FullName()]
		if !known && !c.skips(target) {
			return false
		}
	}
	return true
}

// targets returns fn, or the methods that a call of the interface's method fn may reach.
func (c *census) targets(fn *types.Func, in map[string]bool) []*types.Func {
	fn = fn.Origin()
	receiver := fn.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		return []*types.Func{fn}
	}
	var targets []*types.Func
	for _, method := range c.methods[fn.Name()] {
		if in[method.Pkg().Path()] && implements(method.Signature().Recv().Type(), receiver.Type().Underlying().(*types.Interface)) {
			targets = append(targets, method)
		}
	}
	if len(targets) == 0 {
		return []*types.Func{fn}
	}
	return targets
}

// implements compares the names of methods alone, because types that come from export data are not
// those that come from source.
func implements(t types.Type, of *types.Interface) bool {
	set := types.NewMethodSet(t)
	if _, ok := t.Underlying().(*types.Pointer); !ok {
		set = types.NewMethodSet(types.NewPointer(t))
	}
	names := map[string]bool{}
	for method := range set.Methods() {
		names[method.Obj().Name()] = true
	}
	for method := range of.Methods() {
		if !names[method.Name()] {
			return false
		}
	}
	return true
}

// typeName returns the full name of a type, or of what it points to.
func typeName(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return typeName(t.Elem())
	case *types.Named:
		if t.Obj().Pkg() == nil {
			return t.Obj().Name()
		}
		return t.Obj().Pkg().Path() + "." + t.Obj().Name()
	}
	return ""
}

func deref(t types.Type) types.Type {
	if pointer, ok := t.Underlying().(*types.Pointer); ok {
		return pointer.Elem()
	}
	return t
}
