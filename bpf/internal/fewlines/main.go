// Command fewlines takes the line numbers out of eBPF objects, but for the first of
// each function, which the kernel insists on. Only messages of the verifier use them,
// and to read the others and give them to the kernel is a third of what loading an
// object takes. The format is that of Documentation/bpf/btf.rst.
package main

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

var le = binary.LittleEndian

func main() {
	for _, path := range os.Args[1:] {
		if err := strip(path); err != nil {
			fmt.Fprintf(os.Stderr, "fewlines: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func strip(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s := f.Section(".BTF.ext")
	if s == nil {
		return errors.New("it has no section .BTF.ext")
	}
	data, err := s.Data()
	if err != nil {
		return err
	}
	if err := fewer(data); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, int64(s.Offset))
	return errors.Join(err, file.Close())
}

// Where struct btf_ext_header says what is where, from its own end.
const (
	headerLen   = 4
	funcInfoOff = 8
	lineInfoOff = 16
	lineInfoLen = 20
)

// fewer moves the lines that stay together, within their place in .BTF.ext.
func fewer(data []byte) error {
	part := func(at int) ([]byte, error) {
		begin := int(le.Uint32(data[headerLen:])) + int(le.Uint32(data[at:]))
		end := begin + int(le.Uint32(data[at+4:]))
		if begin > end || end > len(data) {
			return nil, errors.New("broken .BTF.ext")
		}
		return data[begin:end], nil
	}
	funcs, err := part(funcInfoOff)
	if err != nil {
		return err
	}
	lines, err := part(lineInfoOff)
	if err != nil {
		return err
	}
	type place struct{ section, offset uint32 }
	starts := map[place]bool{}
	if err := records(funcs, func(section uint32, r []byte) { starts[place{section, le.Uint32(r)}] = true }); err != nil {
		return err
	}
	var out []byte
	last, counts := uint32(0), 0
	err = records(lines, func(section uint32, r []byte) {
		if !starts[place{section, le.Uint32(r)}] {
			return
		}
		if len(out) == 0 || section != last {
			counts, last = len(out)+4, section
			out = le.AppendUint32(le.AppendUint32(out, section), 0)
		}
		out = append(out, r...)
		le.PutUint32(out[counts:], le.Uint32(out[counts:])+1)
	})
	if err != nil {
		return err
	}
	clear(lines[4+copy(lines[4:], out):])
	le.PutUint32(data[lineInfoLen:], uint32(4+len(out)))
	return nil
}

// records calls fn with each record of a part, and the name of its section.
func records(part []byte, fn func(section uint32, record []byte)) error {
	size := int(le.Uint32(part))
	for rest := part[4:]; len(rest) >= 8; {
		section, n := le.Uint32(rest), int(le.Uint32(rest[4:]))
		rest = rest[8:]
		if size < 4 || n*size > len(rest) {
			return errors.New("broken .BTF.ext")
		}
		for range n {
			fn(section, rest[:size])
			rest = rest[size:]
		}
	}
	return nil
}
