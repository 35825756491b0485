package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/assay-run/assay-run/.ci/layertest"
)

func newTest() *Redactor { return New([]byte("a key of the tests")) }

const aSecret = `hunter2-"correct"\horse`

func TestAKnownSecretIsFoundInEveryForm(t *testing.T) {
	for _, secret := range []string{"s3cr3t-value", aSecret, "pässwörter-sind-geheim",
		strings.Repeat("long ", 200) + "end", "exactly8"} {
		r := newTest()
		if !r.Add(RuleGiven, secret) {
			t.Fatalf("%q was refused", secret)
		}
		quoted, _ := json.Marshal(secret)
		twice, _ := json.Marshal(string(quoted))
		forms := map[string]string{
			"plain": secret, "JSON": string(quoted), "JSON in JSON": string(twice),
			"hex": hex.EncodeToString([]byte(secret)),
			"HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))), "query": url.QueryEscape(secret),
			"path":               url.PathEscape(secret),
			"small":              strings.ToLower(secret),
			"capital":            strings.ToUpper(secret),
			"escaped":            inUnits(secret, `\u%04x`),
			"ESCAPED":            inUnits(secret, `\u%04X`),
			"escaped, in JSON":   strings.ReplaceAll(inUnits(secret, `\u%04x`), `\`, `\\`),
			"partly escaped":     partlyEscaped(secret, `\`),
			"partly, in JSON":    partlyEscaped(secret, `\\`),
			"base64":             base64.StdEncoding.EncodeToString([]byte(secret)),
			"base64url":          base64.RawURLEncoding.EncodeToString([]byte(secret)),
			"basic auth":         base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
			"basic auth, longer": base64.StdEncoding.EncodeToString([]byte("user1:" + secret + "!!")),
		}
		for name, form := range forms {
			// At every distance from the places that the search looks at.
			for shift := range 2 * mostStride {
				text := strings.Repeat(".", shift) + "x=" + form + " tail"
				out := string(r.Text("t", []byte(text)))
				if strings.Contains(out, form) || !strings.Contains(out, "<redacted:given:"+r.tag(secret)+">") {
					t.Errorf("%.20q as %s, shifted by %d: %.120q", secret, name, shift, out)
				}
			}
		}
	}
}

// inUnits is v with each UTF-16 code unit in a format.
func inUnits(v, format string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(v)) {
		fmt.Fprintf(&b, format, unit)
	}
	return b.String()
}

// partlyEscaped is v as text of JSON, with every third character escaped behind slash.
func partlyEscaped(v, slash string) string {
	var b strings.Builder
	for i, c := range []rune(v) {
		switch {
		case i%3 == 1 || c == '"' || c == '\\':
			b.WriteString(strings.ReplaceAll(inUnits(string(c), `\u%04x`), `\`, slash))
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// broken breaks a text into lines of a width.
func broken(text string, width int, newline string) string {
	var b strings.Builder
	for len(text) > width {
		b.WriteString(text[:width] + newline)
		text = text[width:]
	}
	return b.String() + text
}

// TestLineBreaksHideNoSecret writes a longer text that contains a secret in base64 and hex, broken into lines as
// programs do, whole, as JSON, and in writes of all sizes.
func TestLineBreaksHideNoSecret(t *testing.T) {
	secret := "correct-horse-battery/staple?"
	for lead := range 60 { // each alignment, at each distance from a line's end
		text := strings.Repeat("#", lead) + secret + strings.Repeat("!", 70)
		for name, form := range map[string]string{
			"openssl base64": broken(base64.StdEncoding.EncodeToString([]byte(text)), 64, "\n"),
			"base64":         broken(base64.StdEncoding.EncodeToString([]byte(text)), 76, "\n"),
			"MIME":           broken(base64.StdEncoding.EncodeToString([]byte(text)), 76, "\r\n"),
			"base64url":      broken(base64.RawURLEncoding.EncodeToString([]byte(text)), 76, "\n"),
			"xxd -p":         broken(hex.EncodeToString([]byte(text)), 60, "\n"),
		} {
			r := newTest()
			r.Add(RuleGiven, secret)
			without := string(r.Text("t", []byte(form)))
			if total, _, _ := r.Counts(); total != 1 || !strings.Contains(without, "<redacted:given:") {
				t.Fatalf("%s behind %d bytes: %q becomes %q", name, lead, form, without)
			}
			var s sink
			w := r.Writer("t", &s)
			for rest := form; rest != ""; {
				n := min(1+lead%9, len(rest))
				w.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if w.Close(); s.String() != without {
				t.Fatalf("%s behind %d bytes, in pieces of %d: %q, want %q", name, lead, 1+lead%9, s.String(), without)
			}
			once, _ := json.Marshal(map[string]string{"text": form})
			twice, _ := json.Marshal(map[string]string{"text": string(once)})
			for _, line := range [][]byte{once, twice} {
				out := r.JSON("t", line)
				if !json.Valid(out) || !bytes.Contains(out, []byte("<redacted:given:")) {
					t.Fatalf("%s behind %d bytes: %s becomes %s", name, lead, line, out)
				}
			}
			if !r.Finds([]byte(form)) || !r.Finds(twice) {
				t.Fatalf("%s behind %d bytes: Finds does not find it", name, lead)
			}
		}
	}
	// What is no long word keeps its line breaks.
	r := newTest()
	r.Add(RuleGiven, "correcthorse")
	if text := "it is correct\nhorse\n"; string(r.Text("t", []byte(text))) != text {
		t.Errorf("%q becomes %q", text, r.Text("t", []byte(text)))
	}
}

func TestJSONStaysJSON(t *testing.T) {
	r := newTest()
	r.Add(RuleEnv, aSecret)
	r.Add(RuleEnv, `","b":"x`) // must not be found across strings
	r.Add(RuleEnv, "two\nlines-of-a-secret")
	doc := map[string]any{
		"a": aSecret, "b": "x", "argv": []string{"curl", "-u", "me:open sesame", "https://u:pass1@h/?sig=abcdef&x=1",
			"-H", "Authorization: Bearer abcdefgh", `sh -c "x"`},
		"pem": "-----BEGIN PRIVATE KEY-----\nMIIabc", "n": "two\nlines-of-a-secret", "deep": `{"k":"` + aSecret + `"}`,
	}
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	out := r.JSON("doc", append(b, '\n'))
	var back map[string]any
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, gone := range []string{"hunter2", "open sesame", "pass1", "abcdef", "MIIabc", "lines-of"} {
		if bytes.Contains(out, []byte(gone)) {
			t.Errorf("%q is left in %s", gone, out)
		}
	}
	if back["b"] != "x" || len(back) != len(doc) || !bytes.HasSuffix(out, []byte("\n")) {
		t.Errorf("changed too much: %s", out)
	}
}

func TestEachShape(t *testing.T) {
	// A credential of the provider's documented form, and something like it.
	a := func(n int, set string) string {
		var b strings.Builder
		for i := range n {
			b.WriteByte(set[i*7%len(set)])
		}
		return b.String()
	}
	const alnum = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ"
	const lowhex = "0a1b2c3d4e5f"
	cases := []struct{ rule, is, isNot string }{
		{"aws", "AKIA" + a(16, "ABCDEF234567"), "AKIA" + a(12, "ABC234")},
		{"aws", "ASIA" + a(16, "ABCDEF234567"), "ASIA" + a(17, "abc")},
		{"anthropic", "sk-ant-api03-" + a(90, alnum), "sk-ant-" + a(10, alnum)},
		{"openai", "sk-proj-" + a(60, alnum), "sk-proj-short"},
		{"openai", "sk-svcacct-" + a(60, alnum), "sk-svcacct-"},
		{"openai", "sk-admin-" + a(60, alnum), "sk-admin-page-of-a-web-site"},
		{"openai", "sk-" + a(20, alnum) + "T3BlbkFJ" + a(20, alnum), "sk-learn-contrib-package-with-a-long-name"},
		{"github", "ghp_" + a(36, alnum), "ghp_" + a(20, alnum)},
		{"github", "gho_" + a(36, alnum), "gho_x"}, {"github", "ghu_" + a(36, alnum), "ghu_x"},
		{"github", "ghs_" + a(36, alnum), "ghs_x"}, {"github", "ghr_" + a(36, alnum), "ghr_x"},
		{"github", "github_pat_" + a(22, alnum) + "_" + a(59, alnum), "github_pat_" + a(40, alnum)},
		{"gitlab", "glpat-" + a(20, alnum), "glpat-" + a(12, alnum)},
		{"google", "AIza" + a(35, alnum), "AIza" + a(50, alnum)},
		{"google", "ya29." + a(60, alnum), "ya29.short"},
		{"google", "GOCSPX-" + a(28, alnum), "GOCSPX-" + a(10, alnum)},
		{"slack", "xoxb-123456789012-" + a(24, alnum), "xoxb-" + a(30, "abc")},
		{"slack", "xoxp-123456789012-" + a(24, alnum), "xoxp-1-a"},
		{"slack", "xapp-1-A0B1C2D3-123456-" + a(40, lowhex), "xapp-1-A0"},
		{"stripe", "sk_live_" + a(24, alnum), "sk_live_" + a(10, alnum)},
		{"stripe", "sk_test_" + a(24, alnum), "sk_test_case_of_a_function_with_a_name"},
		{"stripe", "rk_live_" + a(24, alnum), "rk_live_x"}, {"stripe", "whsec_" + a(32, alnum), "whsec_x"},
		{"npm", "npm_" + a(36, alnum), "npm_config_registry_of_the_user_and_more_x"},
		{"pypi", "pypi-AgEIcHlwaS5vcmc" + a(60, alnum), "pypi-" + a(60, alnum)},
		{"huggingface", "hf_" + a(34, alnum), "hf_hub_download_of_some_model_file_x"},
		{"sendgrid", "SG." + a(22, alnum) + "." + a(43, alnum), "SG." + a(22, alnum)},
		{"digitalocean", "dop_v1_" + a(64, lowhex), "dop_v1_" + a(40, lowhex)},
		{"databricks", "dapi" + a(32, lowhex), "dapi" + a(40, lowhex)},
		{"shopify", "shpat_" + a(32, lowhex), "shpat_x"}, {"vault", "hvs." + a(24, alnum), "hvs.example.org"},
		{"grafana", "glsa_" + a(32, alnum) + "_" + a(8, lowhex), "glsa_" + a(32, alnum)},
		{"linear", "lin_api_" + a(40, alnum), "lin_api_client_generator"},
		{"jwt", "eyJ" + a(30, alnum) + ".eyJ" + a(40, alnum) + "." + a(43, alnum), "eyJ" + a(40, alnum)},
	}
	covered := map[string]bool{}
	for _, c := range cases {
		for _, around := range [][2]string{{"", ""}, {"key=", "\n"}, {`"`, `"`}, {"a b ", ", next"},
			{"https://h/", "/x"}} {
			r := newTest()
			text := around[0] + c.is + around[1]
			want := around[0] + "<redacted:" + c.rule + ":" + r.tag(c.is) + ">" + around[1]
			if got := string(r.Text("t", []byte(text))); got != want {
				t.Errorf("%s: %q becomes %q", c.rule, text, got)
			}
			if text := around[0] + c.isNot + around[1]; string(r.Text("t", []byte(text))) != text {
				t.Errorf("%s: %q was hit: %q", c.rule, text, r.Text("t", []byte(text)))
			}
		}
		for _, s := range shapes() {
			if strings.HasPrefix(c.is, s.prefix) {
				covered[s.prefix] = true
			}
		}
	}
	for _, s := range shapes() {
		if !covered[s.prefix] {
			t.Errorf("the shape %s has no test", s.prefix)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		gone []string // what must not be left; nil means unchanged
	}{
		{[]string{"deploy", "--token", "abc123xyz"}, []string{"abc123xyz"}},
		{[]string{"deploy", "--api-key=abc123xyz", "--verbose"}, []string{"abc123xyz"}},
		{[]string{"deploy", "--db-password", "p4ss", "x"}, []string{"p4ss"}},
		{[]string{"mysql", "-uroot", "-psesame99"}, []string{"sesame99"}},
		{[]string{"/usr/bin/curl", "-u", "me:sesame99", "https://h"}, []string{"sesame99"}},
		{[]string{"curl", "-H", "Authorization: Bearer sesame99"}, nil}, // a header is found in the text
		{[]string{"sshpass", "-p", "sesame99", "ssh", "h"}, []string{"sesame99"}},
		{[]string{"env", "MY_TOKEN=sesame99", "x"}, []string{"sesame99"}},
		{[]string{"sh", "-c", "export DB_PASSWORD='se same99'; run --secret=other999"},
			[]string{"se same99", "other999"}},
		{[]string{"docker", "login", "-p", "sesame99"}, []string{"sesame99"}},
		{[]string{"docker", "run", "-p", "8080:8080", "image"}, nil},
		{[]string{"tar", "-p", "file"}, nil},
		{[]string{"gcc", "--password-file", "/etc/x"}, nil},
		{[]string{"app", "--token-file=/run/secrets/token"}, nil},
		{[]string{"git", "commit", "-m", "add a token parameter to the password form"}, nil},
		{[]string{"sh", "-c", `echo "--token $TOKEN"`}, nil},
		{[]string{"app", "--token", "--verbose"}, nil},
		{[]string{"make", "KEY=value", "SHELL=/bin/sh"}, nil},
	} {
		r := newTest()
		out := r.Arguments("argv", c.args)
		text := strings.Join(out, "\x00")
		for _, s := range c.gone {
			if strings.Contains(text, s) {
				t.Errorf("%q: %q is left: %q", c.args, s, out)
			}
			if len(s) >= MinSecret && strings.Contains(string(r.Text("t", []byte("and later "+s))), s) {
				t.Errorf("%q: %q is not known from then on", c.args, s)
			}
		}
		if c.gone == nil && text != strings.Join(c.args, "\x00") {
			t.Errorf("%q was changed: %q", c.args, out)
		}
	}
}

func TestURLsAndHeaders(t *testing.T) {
	for in, gone := range map[string]string{
		"git clone https://me:sesame99@example.org/x.git":                                  "sesame99",
		"postgres://app:sesame99@db:5432/app?sslmode=off":                                  "sesame99",
		"GET https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=0123abcd&x=y":       "0123abcd",
		"https://acc.blob.core.windows.net/c?sv=2020&sig=aB%2Fcd%3D end":                   "aB%2Fcd%3D",
		"> authorization: Basic bWU6c2VzYW1l\r\n":                                          "bWU6c2VzYW1l",
		`{"Authorization":"Bearer sesame99"}`:                                              "sesame99",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----": "b3BlbnNz",
	} {
		r := newTest()
		out := string(r.Text("t", []byte(in)))
		if strings.Contains(out, gone) || !strings.Contains(out, "<redacted:") {
			t.Errorf("%q becomes %q", in, out)
		}
		if again := string(r.Text("t", []byte(out))); again != out {
			t.Errorf("a second time, %q becomes %q", out, again)
		}
	}
	for _, in := range []string{
		"https://example.org:8080/a?b=c&page=2", "ssh://git@example.org/x", "mailto:a@b.c", "see http://h/?q=signature",
		"-----BEGIN CERTIFICATE-----\nMIIabc\n-----END CERTIFICATE-----\n", "authorization: none",
		"the authorization failed: bad",
		"-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----",
	} {
		r := newTest()
		if out := string(r.Text("t", []byte(in))); out != in {
			t.Errorf("%q was hit: %q", in, out)
		}
	}
}

// TestNothingElseIsHit holds that paths, digests, ids and hashes stay.
func TestNothingElseIsHit(t *testing.T) {
	var corpus bytes.Buffer
	for _, argv := range [][]string{{"find", "/usr", "/etc", "-xdev"}, {"git", "log", "--format=%H %an %s"},
		{"go", "list", "-m", "all"}} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err == nil {
			corpus.Write(out)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var raw [32]byte
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		fmt.Fprintf(&corpus, "sha256:%x %x %s 01ARZ3NDEKTSV4RRFFQ69G5FAV %s\n", raw, raw[:20],
			base64.StdEncoding.EncodeToString(raw[:]), base64.RawURLEncoding.EncodeToString(raw[:]))
	}
	r := newTest()
	r.Add(RuleEnv, "s3cr3t-value")
	out := r.Text("t", corpus.Bytes())
	if !bytes.Equal(out, corpus.Bytes()) {
		for i, line := range bytes.Split(out, []byte("\n")) {
			if bytes.Contains(line, []byte("<redacted:")) {
				t.Errorf("line %d: %s", i+1, line)
			}
		}
	}
	t.Logf("%d bytes were searched", corpus.Len())
}

type sink struct {
	bytes.Buffer
	closed bool
}

func (s *sink) Close() error { s.closed = true; return nil }

func TestASecretSplitOverWrites(t *testing.T) {
	layertest.Host(t)
	token := "ghp_" + strings.Repeat("aB3", 12)
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("MIIEabcd\n", 40) + "-----END RSA PRIVATE KEY-----\n"
	huge := strings.Repeat("0123456789abcdef!", 1<<16)
	text := "start " + aSecret + " mid " + token + "\n" + pem +
		"Authorization: Bearer sesame-99\nhttps://u:sesame11@h/ " + base64.StdEncoding.EncodeToString([]byte(aSecret)) +
		" end\n"
	for _, size := range []int{1, 2, 3, 7, 64, 1000} {
		r := newTest()
		r.Add(RuleGiven, aSecret)
		r.Add(RuleGiven, huge)
		want := string(r.Text("t", []byte(text)))
		var s sink
		w := r.Writer("t", &s)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if m, err := w.Write([]byte(rest[:n])); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil || !s.closed {
			t.Fatal(err)
		}
		if s.String() != want {
			t.Errorf("in pieces of %d:\n%s\nwant\n%s", size, s.String(), want)
		}
	}
	// What cannot be the beginning of a secret is not held back.
	r := newTest()
	r.Add(RuleGiven, aSecret)
	var s sink
	w := r.Writer("t", &s)
	fmt.Fprint(w, "a prompt: ")
	if s.String() != "a prompt: " {
		t.Errorf("%q came through", s.String())
	}
	// A secret of 1 MB, in two writes.
	r.Add(RuleGiven, huge)
	fmt.Fprint(w, huge[:500_000])
	fmt.Fprint(w, huge[500_000:]+"after\n")
	w.Close()
	if strings.Contains(s.String(), "0123456789abcdef!") || !strings.HasSuffix(s.String(), ">after\n") {
		t.Errorf("%.200q", s.String())
	}
}

func TestEnvironment(t *testing.T) {
	r := newTest()
	short := r.AddEnv([]string{"OPENAI_API_KEY=abcdefghij", "HOME=/root/longer", "X_TOKEN=short",
		"GPG_KEY=/path/to/key", "CI_PASSWORD=true", "db_password=lower-case"}, DefaultEnv)
	if fmt.Sprint(short) != "[X_TOKEN]" {
		t.Errorf("too short: %v", short)
	}
	out := string(r.Text("t", []byte("abcdefghij /root/longer short /path/to/key true lower-case")))
	for _, s := range []string{"abcdefghij", "lower-case"} {
		if strings.Contains(out, s) {
			t.Errorf("%q is left in %q", s, out)
		}
	}
	for _, s := range []string{"/root/longer", "short", "/path/to/key", "true"} {
		if !strings.Contains(out, s) {
			t.Errorf("%q is gone from %q", s, out)
		}
	}
}

func TestTags(t *testing.T) {
	a, b := New([]byte("one")), New([]byte("two"))
	a.Add(RuleEnv, "s3cr3t-value")
	b.Add(RuleEnv, "s3cr3t-value")
	x, y := string(a.Text("t", []byte("s3cr3t-value"))), string(b.Text("t", []byte("s3cr3t-value")))
	if x == y {
		t.Errorf("two keys give one tag: %s", x)
	}
	if Untag("/a/"+x+"/b/"+y+"<redacted:x") != "/a/<redacted:env>/b/<redacted:env><redacted:x" {
		t.Errorf("Untag: %s", Untag("/a/"+x+"/b/"+y+"<redacted:x"))
	}
	if a.Name("t", "/x/s3cr3t-value") != "/x/<redacted:env>" {
		t.Error(a.Name("t", "/x/s3cr3t-value"))
	}
	if total, rules, fields := a.Counts(); total != 2 || rules["env"] != 2 || fields["t"] != 2 {
		t.Error(total, rules, fields)
	}
}

func TestNilLeavesEverything(t *testing.T) {
	var r *Redactor
	b := []byte("AKIAABCDEFGH23456789")
	if &r.Text("t", b)[0] != &b[0] || &r.JSON("t", b)[0] != &b[0] || r.Finds(b) || r.Add(RuleEnv, "abcdefghij") {
		t.Error("nil does something")
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"argv":["x","--token","abcdefgh"],"url":"https://a:bcdefgh@h"}`, "abcdefgh")
	f.Add(`{"a":"-----BEGIN PRIVATE KEY-----"}`, `","b":"c`)
	f.Fuzz(func(t *testing.T, doc, secret string) {
		if !json.Valid([]byte(doc)) {
			return
		}
		r := newTest()
		r.Add(RuleGiven, secret)
		out := r.JSON("doc", []byte(doc))
		if !json.Valid(out) {
			t.Errorf("%q with the secret %q becomes %q", doc, secret, out)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add("ab s3cr3t-value cd ghp_aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3 https://u:pass@h", 3)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 || size > 100 {
			return
		}
		r := newTest()
		r.Add(RuleGiven, "s3cr3t-value")
		var s sink
		w := r.Writer("t", &s)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			w.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		w.Close()
		if strings.Contains(s.String(), "s3cr3t-value") {
			t.Errorf("%q in pieces of %d: %q", text, size, s.String())
		}
	})
}

// BenchmarkStream is what a command's output costs, with one secret to look for.
func BenchmarkStream(b *testing.B) {
	r := newTest()
	r.Add(RuleEnv, aSecret+"-of-24-bytes")
	block := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog 0123456789 /usr/lib/x.so\n"),
		1000)[:64<<10]
	w := r.Writer("t", discard{})
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		w.Write(block)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// BenchmarkLine is what a line of the kernel layer costs.
func BenchmarkLine(b *testing.B) {
	r := newTest()
	r.Add(RuleEnv, aSecret+"-of-24-bytes")
	const head = `{"schema":"assay.runner.kernel_event.v1","run_id":"run_01kakc9d2v3x7s4t9mz0qh8w6r","seq":`
	line := []byte(head + `123456,"t_ns":123456789012,"pid":12345,"tid":12345,"exec_id":3,"event_type":1,"kind":"open","target":"/tmp/files/123456","flags":["O_RDONLY"],"class":"agent","count":1}`)
	for b.Loop() {
		r.Line("t", line, len(head))
	}
}

func BenchmarkText(b *testing.B) {
	r := newTest()
	for i := range 20 {
		r.Add(RuleEnv, fmt.Sprintf("s3cr3t-value-%d-%x", i, i*7919))
	}
	prose, err := os.ReadFile("../SPEC.md")
	if err != nil {
		b.Fatal(err)
	}
	prose = bytes.Repeat(prose, 20)
	b.SetBytes(int64(len(prose)))
	for b.Loop() {
		r.Text("t", prose)
	}
}

func TestNamesOfVariablesMatchAsGlobs(t *testing.T) {
	names := []string{"", "KEY", "A_KEY", "a_key", "A_KEY_ID", "DIR/A_KEY", "KEYRING", "MY*KEY", `A\B`, "AB"}
	patterns := []string{"*_KEY", "*KEY*", "KEY*", "*", "**", "", "A?KEY", "[AM]*KEY", `MY\*KEY`, "*[", `A\\B`, "A*B",
		"*KEY*ID"}
	for _, pattern := range patterns {
		for _, name := range names {
			want, err := path.Match(strings.ToUpper(pattern), strings.ToUpper(name))
			if got := secretName(name, []string{pattern}); got != (want && err == nil) {
				t.Errorf("%q matches %q: %t, want %t", pattern, name, got, !got)
			}
		}
	}
}

// BenchmarkName is what a path of the capability surface costs.
func BenchmarkName(b *testing.B) {
	r := newTest()
	r.Add(RuleEnv, aSecret+"-of-24-bytes")
	for b.Loop() {
		r.Name("t", "/home/user/project/files/123456")
	}
}
