package schema

import "bytes"

// decodeFast reads the lines that [AppendJSON] writes for most events: v1, no
// escapes, none of the rare keys. It returns false, with e in any state, for
// anything else, valid or not: decodeSlow decides about those.
func decodeFast(line []byte, e *KernelEvent) bool {
	s := scanner{b: line}
	run := e.RunID
	*e = KernelEvent{}
	s.need(`{"schema":"assay.runner.kernel_event.v1","run_id":"`)
	id := s.text()
	if string(id) == run {
		e.RunID = run // one string for all lines of a run
	} else {
		e.RunID = string(id)
	}
	s.need(`,"seq":`)
	e.Seq = s.uint(1<<64 - 1)
	s.need(`,"t_ns":`)
	e.TNS = s.int()
	s.need(`,"pid":`)
	e.PID = uint32(s.uint(1<<32 - 1))
	e.TID = e.PID
	if s.has(`,"tid":`) {
		e.TID = uint32(s.uint(1<<32 - 1))
	}
	if s.has(`,"exec_id":`) {
		e.ExecID = s.uint(1<<64 - 1)
	}
	s.need(`,"event_type":`)
	e.Kind = KernelKind(s.uint(1<<16 - 1))
	s.need(`,"kind":"`)
	kind := s.text()
	if int(e.Kind) >= len(kindNames) || len(kind) == 0 || kindNames[e.Kind] != string(kind) {
		return false
	}
	s.need(`,"value":`)
	if !s.has(`null`) {
		s.need(`"`)
		e.Value = string(s.text())
	}
	if s.has(`,"flags":`) {
		e.Flags = s.uint(1<<64 - 1)
	}
	if s.has(`,"mode":`) {
		e.Mode = uint32(s.uint(1<<32 - 1))
	}
	if s.has(`,"resolve":`) {
		e.Resolve = s.uint(1<<64 - 1)
	}
	if s.has(`,"return_value":`) {
		e.HasResult, e.Result = true, s.int()
	}
	if s.has(`,"access_mode":"`) && string(s.text()) != accessMode(e.Flags) {
		return false
	}
	if bytes.HasPrefix(s.b, []byte(`,"operation_flags":`)) {
		var buf [64]byte
		s.need(string(appendOperations(buf[:0], e.Flags)))
	}
	if s.has(`,"status":"`) {
		st := s.text()
		if !e.HasResult || string(st) != "success" && string(st) != "error" || (string(st) == "success") != (e.Result >= 0) {
			return false
		}
	}
	if s.has(`,"errno":"`) {
		if name := s.text(); e.Result >= 0 || string(name) != ErrnoName(-e.Result) {
			return false
		}
	}
	if s.has(`,"class":"`) {
		c, ok := ParseClass(string(s.text()))
		if !ok {
			return false
		}
		e.Class = c
	}
	e.UserMemory = s.has(`,"path_source":"user_memory"`)
	if s.has(`,"count":`) {
		e.Repeat, e.Count = true, s.uint(1<<64-1)
		s.need(`,"t_first_ns":`)
		e.TFirstNS = s.int()
		s.need(`,"t_last_ns":`)
		e.TLastNS = s.int()
	}
	if s.has(`,"bytes_out":`) {
		e.BytesOut = s.uint(1<<64 - 1)
	}
	if s.has(`,"bytes_in":`) {
		e.BytesIn = s.uint(1<<64 - 1)
	}
	s.need(`}`)
	return !s.bad && len(s.b) == 0 && e.RunID != ""
}

// scanner eats a line from the front; bad once anything was not as expected.
type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) has(lit string) bool {
	if s.bad || len(s.b) < len(lit) || string(s.b[:len(lit)]) != lit {
		return false
	}
	s.b = s.b[len(lit):]
	return true
}

func (s *scanner) need(lit string) {
	if !s.has(lit) {
		s.bad = true
	}
}

// text eats a string's bytes and its closing quote.
func (s *scanner) text() []byte {
	if s.bad {
		return nil
	}
	for i, c := range s.b {
		if plain[c] {
			continue
		}
		if c != '"' {
			break
		}
		t := s.b[:i]
		s.b = s.b[i+1:]
		return t
	}
	s.bad = true
	return nil
}

func (s *scanner) uint(limit uint64) uint64 {
	var n uint64
	i := 0
	for ; i < len(s.b) && '0' <= s.b[i] && s.b[i] <= '9' && i < 20; i++ {
		d := uint64(s.b[i] - '0')
		if n > (1<<64-1-d)/10 {
			s.bad = true
			return 0
		}
		n = n*10 + d
	}
	if i == 0 || i > 1 && s.b[0] == '0' || n > limit {
		s.bad = true
		return 0
	}
	s.b = s.b[i:]
	return n
}

func (s *scanner) int() int64 {
	neg := s.has(`-`)
	n := s.uint(1<<63 - 1)
	if neg {
		if n == 0 {
			s.bad = true // -0, or the one number that does not fit: not ours
		}
		return -int64(n)
	}
	return int64(n)
}
