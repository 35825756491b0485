package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestRulesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a file that is too large":         {strings.Repeat("# x\n", MaxRules), "bytes of rules"},
		"too many rules":                   {strings.Repeat("a b\n", maxRuleCount+1), "line 101: more than 100 rules"},
		"a name alone":                     {"\n# a comment\nname\n", "line 3: \"name\" is a name without a pattern"},
		"a name with other characters":     {"Name x", "lower-case letters"},
		"a name that is too long":          {strings.Repeat("n", 33) + " x", "the name"},
		"a pattern that is too long":       {"n " + strings.Repeat("x", maxPattern+1), "1025 bytes"},
		"what RE2 does not have":           {`n (a)\1`, "invalid escape sequence"},
		"a look-ahead":                     {`n a(?=b)`, "invalid or unsupported Perl syntax"},
		"repetitions of repetitions":       {`n ((a{1000}){1000}){1000}`, "invalid repeat count"},
		"a pattern that matches nothing":   {`n a*`, "matches the empty text"},
		"a pattern that ends in a bracket": {`n [a`, "missing closing ]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRules([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestRules(t *testing.T) {
	rules, err := ParseRules([]byte("# customers\ncustomer  cust-[0-9]{4}\nticket\tticket=([a-z]+)\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := newTest()
	r.Use(rules)
	out := string(r.JSON("t", []byte(`{"a":"cust-1234 ticket=abc","cust-1234":1}`)))
	if want := fmt.Sprintf(`{"a":"<redacted:customer:%s> ticket=<redacted:ticket:%s>","<redacted:customer:%[1]s>":1}`,
		r.tag("cust-1234"), r.tag("abc")); out != want {
		t.Errorf("%s, want %s", out, want)
	}
	// Split over writes, up to the end of its line.
	var s sink
	w := r.Writer("t", &s)
	fmt.Fprint(w, "one\ncust-")
	fmt.Fprint(w, "1234 two\n")
	w.Close()
	if want := "one\n<redacted:customer:" + r.tag("cust-1234") + "> two\n"; s.String() != want {
		t.Errorf("%q, want %q", s.String(), want)
	}
}

// TestHostileRulesLeaveTheFormat holds that a rule that matches everything makes no
// line invalid.
func TestHostileRulesLeaveTheFormat(t *testing.T) {
	rules, err := ParseRules([]byte(`all .+`))
	if err != nil {
		t.Fatal(err)
	}
	r := newTest()
	r.Keep("01TEST")
	r.Use(rules)
	line := []byte(`{"schema":"assay.runner.event.v0","run_id":"01TEST","seq":0,"type":"run_started","t_ns":0,"agent_shim":"none","command":["sh","-c","a secret"],"env_keys":[],"window_elapsed_ms":0}`)
	out := r.JSON("t", line)
	if err := schema.Validate(schema.EventV0, out); err != nil || bytes.Contains(out, []byte("a secret")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTheFormatsOwnWords holds that whoever passes a word of the format as a password
// cannot make the bundle unreadable.
func TestTheFormatsOwnWords(t *testing.T) {
	r := newTest()
	r.Keep("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	sum := "sha256:" + strings.Repeat("ab", 32)
	for _, word := range []string{"ETIMEDOUT", "SIGVTALRM", "kernel_layer_off", "01ARZ3NDEKTSV4RRFFQ69G5FAW",
		"window_elapsed_ms", "run_started", "assay.runner.event.v0", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		strings.Repeat("ab", 32), "2026-11-22T05:10:18.123Z", "00000000000"} {
		r.Add(RuleEnv, word)
	}
	line := []byte(`{"schema":"assay.runner.event.v0","run_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","t_ns":100000000000,"type":"run_started","window_elapsed_ms":3,"at":"2026-11-22T05:10:18.123Z","sum":"` + sum + `","errno":"ETIMEDOUT","signal": "SIGVTALRM","call_id":"01ARZ3NDEKTSV4RRFFQ69G5FAW","code":"kernel_layer_off"}`)
	if out := r.JSON(schema.EventsPath, line); !bytes.Equal(out, line) {
		t.Errorf("%s", out)
	}
	// What replacements are made of is never known.
	if r.Add(RuleEnv, "redacted"); string(r.Text("t", []byte("x <redacted:cut>"))) != "x <redacted:cut>" {
		t.Error("a replacement was replaced")
	}
	// In other text, and in what else stands in JSON, they are secrets.
	if out := string(r.Text("t", []byte("x window_elapsed_ms x"))); strings.Contains(out, "window") {
		t.Errorf("%s", out)
	}
	if out := string(r.JSON("t", []byte(`{"code":"kernel_layer_off","b":"SIGVTALRM"}`))); strings.Contains(out,
		"kernel") || strings.Contains(out, "VTALRM") {
		t.Errorf("%s", out)
	}
	if out := string(r.JSON("t", []byte(`{"a":"at 2026-11-22T05:10:18.123Z"}`))); strings.Contains(out, "2026") {
		t.Errorf("%s", out)
	}
}

func TestMoreEncodings(t *testing.T) {
	secret := "s3cr3t/value+of ümläut & more, long enough to be wrapped by a program that breaks its lines: 0123456789"
	r := newTest()
	r.Add(RuleGiven, secret)
	all := ""
	for _, c := range []byte(secret) {
		all += fmt.Sprintf("%%%02x", c)
	}
	b64 := base64.StdEncoding.EncodeToString([]byte(secret))
	dump := hex.EncodeToString([]byte(secret))
	for name, form := range map[string]string{
		"percent, each byte":  all,
		"percent, lower case": "s3cr3t%2fvalue%2bof%20%c3%bcml%c3%a4ut%20%26%20more%2c%20long",
		"JavaScript's": "s3cr3t%2Fvalue%2Bof%20%C3%BCml%C3%A4ut%20%26%20more%2C%20long%20enough%20to%20be%20" +
			"wrapped%20by%20a%20program%20that%20breaks%20its%20lines%3A%200123456789",
		"base64": b64[:76] + "\n" + b64[76:], "openssl base64": b64[:64] + "\n" + b64[64:128] + "\n" +
			b64[128:], "xxd -p": dump[:60] + "\n" + dump[60:120] + "\n" + dump[120:180] + "\n" + dump[180:],
		"base64 of hex":    base64.StdEncoding.EncodeToString([]byte(dump)),
		"hex of base64":    hex.EncodeToString([]byte(b64)),
		"base64 of base64": base64.StdEncoding.EncodeToString([]byte(b64)),
	} {
		if name == "percent, lower case" {
			form += "%20enough%20to%20be%20wrapped%20by%20a%20program%20that%20breaks%20its%20lines%3a%200123456789"
		}
		out := string(r.Text("t", []byte("x "+form+" x")))
		for _, line := range strings.Split(form, "\n") {
			if len(line) >= 2*MinSecret && strings.Contains(out, line) {
				t.Errorf("%s: %q is left in %q", name, line, out)
			}
		}
	}
}

// TestWhatTheEvidenceMayTeach holds that an agent that shows ever new secrets makes
// later lines no dearer, and that the receipt says so.
func TestWhatTheEvidenceMayTeach(t *testing.T) {
	r := newTest()
	var many []string
	for i := range maxLearned + 10 {
		many = append(many, fmt.Sprintf("--token=shown-secret-%06d", i))
	}
	out := r.Arguments("argv", append([]string{"tool"}, many...))
	if slices.ContainsFunc(out, func(a string) bool { return strings.Contains(a, "shown-secret") }) {
		t.Error("one is left where it was shown")
	}
	if got := string(r.Text("t", []byte("shown-secret-000001"))); strings.Contains(got, "shown") {
		t.Errorf("%s is not known", got)
	}
	if len(r.have) > maxLearned || !slices.ContainsFunc(r.NotSearched(), func(s string) bool {
		return strings.Contains(s, "too many")
	}) {
		t.Errorf("%d are known; %v", len(r.have), r.NotSearched())
	}
	// Those that the caller names are known all the same.
	if !r.Add(RuleGiven, "a-given-secret") || !r.Finds([]byte("a-given-secret")) {
		t.Error("a given one is not known")
	}
}

// TestTheEndOfWhatWasCut holds that the first part of a secret at a stream's end goes.
func TestTheEndOfWhatWasCut(t *testing.T) {
	for name, text := range map[string]string{
		"a known secret": "x " + aSecret[:len(aSecret)-3], "a shape": "x ghp_aB3aB3aB3aB3",
		"a password in a URL": "x https://me:sesame-op",
	} {
		r := newTest()
		r.Add(RuleGiven, aSecret)
		var s sink
		w := r.Writer("t", &s)
		fmt.Fprint(w, text)
		w.Close()
		if !strings.HasSuffix(s.String(), "<redacted:cut>") || strings.Contains(s.String(), "hunter2") ||
			strings.Contains(s.String(), "aB3") || strings.Contains(s.String(), "sesame") {
			t.Errorf("%s: %q", name, s.String())
		}
	}
}

func TestHugeSecrets(t *testing.T) {
	value := strings.Repeat("0123456789abcdef-", 1<<16)[:1<<20]
	r := newTest()
	if !r.Add(RuleGiven, value) {
		t.Fatal("refused")
	}
	doc, err := json.Marshal(map[string]string{"a": value, "b": base64.StdEncoding.EncodeToString([]byte(value))})
	if err != nil {
		t.Fatal(err)
	}
	if out := r.JSON("t", doc); len(out) > 200 {
		t.Errorf("%d bytes are left", len(out))
	}
}
