package specfile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewSpecHasDefaultsAndIsValid(t *testing.T) {
	s := New("true")
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^run_[0-9a-z]{26}$`).MatchString(s.RunID) {
		t.Errorf("run id %q is not run_ and a lower-case ULID", s.RunID)
	}
	if s.Platform != runtime.GOOS || s.AgentShim != "none" || s.Grace != 5*time.Second || s.CaptureBytes != 64<<20 {
		t.Errorf("defaults: %+v", s)
	}
	if other := New("true"); other.RunID == s.RunID {
		t.Error("two specs share a run id")
	}
}

func TestShimsAreAnExplicitList(t *testing.T) {
	if diff := cmp.Diff([]string{"none", "openai-agents", "gemini-google-genai", "claude-code", "codex", "gemini-cli",
		"opencode", "qwen-code", "pi", "mcp", "log"}, Shims); diff != "" {
		t.Error(diff)
	}
}

func TestValidateNamesEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Spec)
		want   error
		text   string
	}{
		"no command":          {func(s *Spec) { s.Command = nil }, ErrEmptyCommand, ""},
		"empty run id":        {func(s *Spec) { s.RunID = "" }, ErrEmptyRunID, ""},
		"separator in run id": {func(s *Spec) { s.RunID = "a:b" }, ErrRunIDSeparator, "a:b"},
		"slash in run id":     {func(s *Spec) { s.RunID = "../x" }, ErrRunIDCharacter, "../x"},
		"letter beyond ASCII": {func(s *Spec) { s.RunID = "rün" }, ErrRunIDCharacter, ""},
		"newline in run id":   {func(s *Spec) { s.RunID = "a\n" }, ErrRunIDCharacter, ""},
		"run id of 129 bytes": {func(s *Spec) {
			s.RunID = strings.Repeat("a", 129)
		}, ErrRunIDTooLong, "129"},
		"unknown shim": {func(s *Spec) {
			s.AgentShim = "langchain"
		}, ErrUnsupportedShim, "langchain"},
		"NUL in an argument": {func(s *Spec) {
			s.Command = []string{"a", "b\x00"}
		}, ErrNUL, "argument 1"},
		"empty program name": {func(s *Spec) {
			s.Command = []string{""}
		}, ErrEmptyProgramName, ""},
		"NUL in the working directory": {func(s *Spec) { s.Workdir = "/\x00" }, ErrNUL, ""},
		"empty env key": {func(s *Spec) {
			s.Env = map[string]string{"": "x"}
		}, ErrEnvKey, ""},
		"equals sign in an env key": {func(s *Spec) {
			s.Env = map[string]string{"A=B": "x"}
		}, ErrEnvKey, "A=B"},
		"NUL in an env value": {func(s *Spec) {
			s.Env = map[string]string{"SECRET": "se\x00cret"}
		}, ErrNUL, "SECRET"},
		"negative timeout":      {func(s *Spec) { s.Timeout = -1 }, ErrNegative, "timeout"},
		"negative grace":        {func(s *Spec) { s.Grace = -1 }, ErrNegative, "grace"},
		"negative memory":       {func(s *Spec) { s.Limits.Memory = -1 }, ErrNegative, "memory"},
		"memory without a unit": {func(s *Spec) { s.Limits.Memory = 512 }, ErrTooLittle, "512M"},
		"memory for no process": {func(s *Spec) { s.Limits.Memory = 64 << 10 }, ErrTooLittle, "256KiB"},
		"space in a variable": {func(s *Spec) {
			s.Env = map[string]string{"A B": "c"}
		}, ErrEnvKey, "A B"},
		"negative pids":         {func(s *Spec) { s.Limits.Pids = -1 }, ErrNegative, "pids"},
		"negative cpus":         {func(s *Spec) { s.Limits.CPUs = -1 }, ErrNegative, "cpus"},
		"negative capture":      {func(s *Spec) { s.CaptureBytes = -1 }, ErrNegative, "capture"},
		"unknown kernel choice": {func(s *Spec) { s.Kernel = "maybe" }, ErrChoice, "maybe"},
		"unknown compat form":   {func(s *Spec) { s.Compat = "v9" }, ErrChoice, "v9"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New("true")
			c.change(s)
			err := s.Validate()
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("%q does not name %q", err, c.text)
			}
			if strings.Contains(err.Error(), "se\x00cret") {
				t.Errorf("%q quotes an environment value", err)
			}
		})
	}
}

func TestValidateReportsFaultsInTheDocumentedOrder(t *testing.T) {
	s := &Spec{RunID: strings.Repeat("ü:", 100), AgentShim: "x", Kernel: "auto"}
	lines := strings.Split(s.Validate().Error(), "\n")
	want := []error{ErrEmptyCommand, ErrRunIDSeparator, ErrRunIDCharacter, ErrRunIDTooLong,
		ErrUnsupportedShim}
	if len(lines) != len(want) {
		t.Fatalf("%d faults, want %d: %q", len(lines), len(want), lines)
	}
	for i, w := range want {
		if !strings.HasSuffix(strings.SplitN(lines[i], " (supported", 2)[0], w.Error()) &&
			!strings.Contains(lines[i], w.Error()) {
			t.Errorf("fault %d is %q, want %q", i, lines[i], w)
		}
	}
}

func TestRunIDOf128BytesIsValid(t *testing.T) {
	s := New("true")
	s.RunID = strings.Repeat("a", 128)
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLoadFileOverlaysTheSpec(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"run.yaml": "command: [make, -j2]\nenv: {A: b}\nworkdir: sub\ntimeout: 1m30s\ngrace: 2s\n" +
			"limits: {memory: 512M, pids: 64, cpus: 1.001, best_effort: true}\nlabels: {team: x}\ncapture: " +
			"false\ncapture_bytes: 1024\nkernel: 'off'\nkernel_buffer: 1M\n",
		"run.json": `{"command":["make","-j2"],"env":{"A":"b"},"workdir":"sub","timeout":"1m30s","grace":"2s",
			"limits":{"memory":"512M","pids":64,"cpus":1.001,"best_effort":true},"labels":{"team":"x"},"capture":false,"capture_bytes":1024,"kernel":"off","kernel_buffer":1048576}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := New()
			want := *got
			want.Command = []string{"make", "-j2"}
			want.Env = map[string]string{"A": "b"}
			want.Workdir = filepath.Join(dir, "sub")
			want.Timeout, want.Grace = 90*time.Second, 2*time.Second
			want.Limits = Limits{Memory: 512 << 20, Pids: 64, CPUs: 1001, BestEffort: true}
			want.Labels = map[string]string{"team": "x"}
			want.Capture, want.CaptureBytes, want.Kernel, want.KernelBuffer = false, 1024, "off", 1<<20
			if err := got.LoadFile(path); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadFileRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"unknown key in YAML":        {"a.yaml", "command: [x]\ncomand: [y]\n", "line 2"},
		"key given twice in YAML":    {"a.yaml", "kernel: auto\nkernel: off\n", "line 2"},
		"unknown key in JSON":        {"a.json", `{"comand":["x"]}`, "comand"},
		"key given twice in JSON":    {"a.json", `{"kernel":"auto","kernel":"off"}`, "kernel"},
		"bad duration":               {"a.yaml", "timeout: soon\n", "soon"},
		"bad size":                   {"a.yaml", "limits: {memory: lots}\n", "lots"},
		"a size that rounds to none": {"a.yaml", "limits: {memory: 0.5}\n", "less than a byte"},
		"CPUs that round to none":    {"a.yaml", "limits: {cpus: 0.0005}\n", "minimum of 0.01"},
		"more CPUs than a number":    {"a.json", `{"limits":{"cpus":1e300}}`, "not a number of CPUs"},
		"trailing text after JSON":   {"a.json", `{} {}`, "a.json"},
		"a list instead of a table":  {"a.yaml", "- x\n", "line 1"},
		"a file that is not there":   {"", "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "missing.yaml")
			if c.file != "" {
				path = filepath.Join(t.TempDir(), c.file)
				if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := New("x").LoadFile(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v does not name %q and %q", err, path, c.want)
			}
		})
	}
}

// TestSpecIsPlainJSON: other tools can read and write the JSON of a spec without loss, and it is read back unchanged.
func TestSpecIsPlainJSON(t *testing.T) {
	stored, err := os.ReadFile(filepath.Join("testdata", "wire", "runspec.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s, again Spec
	if err := json.Unmarshal(stored, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Errorf("%s: %v", stored, err)
	}
	if s.Grace != DefaultGrace || !s.Capture || s.Kernel != KernelAuto {
		t.Errorf("what the file does not say is not the default: %+v", s)
	}
	ours, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := errors.Join(json.Unmarshal(stored, &want), json.Unmarshal(ours, &got)); err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		if diff := cmp.Diff(v, got[k]); diff != "" {
			t.Errorf("%s (-stored +ours):\n%s", k, diff)
		}
	}
	full := New("a")
	full.Timeout, full.Limits = 90*time.Second, Limits{Memory: 3 << 20, Pids: 7, CPUs: 1500, BestEffort: true}
	full.Capture, full.CaptureBytes, full.Turns = false, 0, Turns{CLITool: "x", FieldBytes: 1000}
	if ours, err = json.Marshal(full); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(ours, &again); err != nil {
		t.Fatal(err)
	}
	full.Env = map[string]string{}
	if diff := cmp.Diff(full, &again); diff != "" {
		t.Errorf("%s (-ours +read):\n%s", ours, diff)
	}
	for text, want := range map[string]string{`{"comand":["x"]}`: "comand",
		`{"kernel":"auto","kernel":"off"}`: "kernel"} {
		if err := json.Unmarshal([]byte(text), new(Spec)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzLoadFile(f *testing.F) {
	f.Add([]byte("command: [a]\nlimits: {memory: 1G}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "run.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := New("x")
		if s.LoadFile(path) == nil {
			_ = s.Validate()
		}
	})
}
