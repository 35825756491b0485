package archive

import (
	"bytes"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// layer cleans the lines of a layer. Where a line would not be valid without a secret,
// the whole layer is emptied.
func (c *cleaner) layer(src source) (source, error) {
	check, err := schema.NewLineChecker(lineSchemas(src.path)...)
	if err != nil {
		return source{}, err
	}
	due := map[uint64]bool{}
	for _, t := range c.points.layers[src.path] {
		due[t.Lines] = true
	}
	var grown tree
	marks := map[uint64]schema.LayerTree{0: grown.state()}
	c.layers[src.path] = marks
	blobs := strings.NewReplacer(c.blobs...)
	lines, spoiled := uint64(0), false
	clean, err := c.out.member(src.path, func(w io.Writer) error {
		return c.lines(src, func(line []byte, whole bool) error {
			before := line
			switch {
			case src.path == schema.EventsPath:
				line = c.checkpoint(line)
			case src.path == schema.TurnsPath:
				if len(c.blobs) > 0 {
					line = []byte(blobs.Replace(string(line)))
				}
				line = c.values(src.path, line)
			}
			after := c.r.JSON(src.path, line)
			if len(after) >= MaxLine {
				after = redact.Shorten(after)
			}
			if !bytes.Equal(after, line) {
				if _, err := check.Check(after); err != nil {
					_, was := check.Check(before)
					spoiled = spoiled || was == nil
				}
			}
			if _, err := w.Write(after); err != nil || !whole {
				return err
			}
			lines++
			if grown.add(tlog.RecordHash(after)); due[lines] || src.path == schema.EventsPath {
				marks[lines] = grown.state()
			}
			_, err := w.Write([]byte{'\n'})
			return err
		})
	})
	if err != nil {
		return source{}, err
	}
	if spoiled {
		c.dropped = append(c.dropped, src.path)
		c.lost[src.path], grown = lines, tree{}
		c.layers[src.path] = nil
		clean = source{path: src.path}
	}
	c.integrity.Layers[schema.LayerName(src.path)] = grown.state()
	return clean, nil
}

// values takes the secrets out of what a turn has of a tool: they may be numbers.
func (c *cleaner) values(path string, line []byte) []byte {
	var out []byte
	copied := 0
	d := jsontext.NewDecoder(bytes.NewBuffer(line))
	if _, err := d.ReadToken(); err != nil {
		return line
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return line
		}
		name := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return line
		}
		if name != "parameters" && name != "output" {
			continue
		}
		end := int(d.InputOffset())
		if clean := c.r.Value(path, v); !bytes.Equal(clean, v) {
			out = append(append(out, line[copied:end-len(v)]...), clean...)
			copied = end
		}
	}
	return append(out, line[copied:]...)
}

// checkpoint makes a lifecycle line that is a checkpoint tell of what is written now.
func (c *cleaner) checkpoint(line []byte) []byte {
	if !bytes.Contains(line, []byte(`"`+schema.CheckpointMade+`"`)) {
		return line
	}
	var e schema.Event
	if json.Unmarshal(line, &e) != nil || e.Type != schema.CheckpointMade || e.Checkpoint == nil {
		return line
	}
	for _, p := range schema.Layers {
		name := schema.LayerName(p)
		t, told := e.Checkpoint.Layers[name]
		if now, ok := c.layers[p][t.Lines]; told && ok {
			e.Checkpoint.Layers[name] = now
		} else if told && c.layers[p] == nil { // it was emptied
			delete(e.Checkpoint.Layers, name)
		}
	}
	for p, m := range e.Checkpoint.Members {
		if now, ok := c.members[p][m.Bytes]; ok {
			e.Checkpoint.Members[p] = now
		} else if c.members[p] == nil {
			delete(e.Checkpoint.Members, p)
		}
	}
	out, err := schema.Line(e)
	if err != nil {
		return line // plain data always encodes
	}
	return bytes.TrimSuffix(out, []byte{'\n'})
}

// castWriter takes the secrets out of a terminal recording, also those that are split
// over several of its events.
type castWriter struct {
	r    *redact.Redactor
	text *redact.Pieces
	w    io.WriteCloser
	rest []byte // of a line
}

func (c *castWriter) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		end := bytes.IndexByte(c.rest, '\n')
		if end < 0 {
			return len(b), nil
		}
		if err := c.line(c.rest[:end]); err != nil {
			return 0, err
		}
		c.rest = c.rest[end+1:]
	}
}

// castEvent is the time since the one before, the kind, and the data.
type castEvent [3]any

func (c *castWriter) line(line []byte) error {
	var raw []jsontext.Value
	var kind, data string
	if json.Unmarshal(line, &raw) != nil || len(raw) != 3 || json.Unmarshal(raw[1], &kind) != nil || json.Unmarshal(raw[2], &data) != nil {
		return c.put(c.r.JSON(schema.TerminalPath, line))
	}
	if kind != "o" {
		if err := c.end(); err != nil {
			return err
		}
		return c.put(c.r.JSON(schema.TerminalPath, line))
	}
	return c.event(raw[0], string(c.text.Next([]byte(data))))
}

func (c *castWriter) event(interval jsontext.Value, data string) error {
	line, err := schema.Line(castEvent{interval, "o", data})
	if err != nil {
		return err
	}
	return c.put(bytes.TrimSuffix(line, []byte{'\n'}))
}

// end writes the text that waits for more.
func (c *castWriter) end() error {
	rest := c.text.End()
	c.text = c.r.Pieces(schema.TerminalPath)
	if len(rest) == 0 {
		return nil
	}
	return c.event(jsontext.Value("0.000000"), string(rest))
}

func (c *castWriter) put(line []byte) error {
	_, err := c.w.Write(append(bytes.Clone(line), '\n'))
	return err
}

func (c *castWriter) Close() error {
	if err := c.end(); err != nil {
		return err
	}
	if len(c.rest) > 0 { // torn
		if _, err := c.w.Write(c.r.Text(schema.TerminalPath, c.rest)); err != nil {
			return err
		}
	}
	return c.w.Close()
}
