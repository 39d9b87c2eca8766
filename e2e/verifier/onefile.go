// Package verifier holds the sources of the independent verifier, which is written in Python, and
// makes one file of them: /verify.py, and the module of the wheel.
package verifier

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed bls.py closing.py jcs.py notes.py receipt.py seats.py shape.py signatures.py timelock.py verdict.py verify.py algorithms/*.py
var sources embed.FS

// Each module may import those before it.
var modules = []string{"jcs", "signatures", "bls", "timelock", "seats", "verdict", "shape", "notes", "closing", "receipt", "verify"}

const head = `#!/usr/bin/env python3
"""Verifies a Fairpact certificate with nothing but Python's standard library.

    python3 verify.py --bundle bundle.json --pubkey es256:…
    python3 verify.py --help

This is one file made of the modules in e2e/verifier of Fairpact's source, each unchanged between its marks.
"""
import builtins
import sys
import types

_modules = {}


def _import(name, of=None, local=None, wanted=(), level=0):
    return _modules[name] if name in _modules else builtins.__import__(name, of, local, wanted, level)


def _module(name, source):
    module = _modules[name] = types.ModuleType(name)
    module.__builtins__ = dict(vars(builtins), __import__=_import)  # so that the modules find each other here
    module.__path__ = []
    line = sys._getframe(1).f_lineno - source.count("\n")  # so that a traceback names the line of this file
    exec(compile("\n" * (line - 1) + source, __file__, "exec"), vars(module))
    return module

`

const tail = `

main, verify, verify_bundle = (getattr(_modules["verify"], name) for name in ("main", "verify", "verify_bundle"))

if __name__ == "__main__":
    sys.exit(main())
`

// OneFile returns the whole verifier as one Python program.
func OneFile() string {
	var b strings.Builder
	b.WriteString(head)
	section := func(before, name, file string) {
		source, err := sources.ReadFile(file)
		if err != nil {
			panic(err) // a bug: the file is embedded in the binary
		}
		b.WriteString("\n" + before + `_module("` + name + "\", r'''" + string(source) + "''')\n")
	}
	section("", "algorithms", "algorithms/__init__.py")
	algorithms, err := fs.Glob(sources, "algorithms/*_v*.py")
	if err != nil {
		panic(err) // a bug: the pattern is malformed
	}
	for _, file := range algorithms {
		name := "algorithms." + strings.TrimSuffix(path.Base(file), ".py")
		section("_known = ", name, file)
		b.WriteString(`_modules["algorithms"].KNOWN[_known.ID] = _known` + "\n")
	}
	for _, name := range modules {
		section("", name, name+".py")
	}
	b.WriteString(tail)
	return b.String()
}
