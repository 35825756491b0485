package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// srtKeys are all keys of srt's settings, of its version 0.0.83.
const srtKeys = `
network.allowedDomains network.deniedDomains network.deniedDomainReasons network.strictAllowlist
network.deniedResolvedAddresses network.allowUnixSockets network.allowAllUnixSockets network.allowLocalBinding
network.allowMachLookup network.httpProxyPort network.socksProxyPort network.mitmProxy.socketPath network.mitmProxy.domains
network.filterRequest network.allowPlaintextHeaderSet network.stripResponseHeaders network.refuseOpaqueTunnels
network.requireHostMatch network.ambiguousRequestTarget network.tlsTerminate.caCertPath network.tlsTerminate.caKeyPath
network.tlsTerminate.excludeDomains network.tlsTerminate.extraCaCertPaths network.tlsTerminate.maxTunnels
network.tlsTerminate.handshakeTimeoutMs network.parentProxy.http network.parentProxy.https network.parentProxy.noProxy
filesystem.disabled filesystem.denyRead filesystem.allowRead filesystem.allowWrite filesystem.denyWrite filesystem.allowGitConfig
credentials.files.path credentials.files.mode credentials.files.extract credentials.files.onExtractNoMatch
credentials.files.decode credentials.files.maskClaims credentials.files.maskDuplicates credentials.files.injectHosts
credentials.envVars.name credentials.envVars.mode credentials.envVars.extract credentials.envVars.onExtractNoMatch
credentials.envVars.decode credentials.envVars.maskClaims credentials.envVars.injectHosts
credentials.allowPlaintextInject credentials.awsPairs.accessKeyIdVar credentials.awsPairs.secretAccessKeyVar
credentials.awsPairs.sessionTokenVar credentials.sigv4.streaming credentials.sigv4.presigned credentials.sigv4.sigv4a
ignoreViolations enableWeakerNestedSandbox allowNestedUserNamespaces enableWeakerNetworkIsolation allowAppleEvents
ripgrep.command ripgrep.args ripgrep.argv0 mandatoryDenySearchDepth allowPty seccomp.applyPath seccomp.argv0
bwrapPath socatPath javaAgentJarPath windows.backend windows.sandboxUser windows.sublayerGuid windows.wfpSublayerGuid
windows.proxyPortRange windows.srtWin.path git.safeDirectories`

// srtEffect is the visible effect of a setting: the script's output with it, and without.
type srtEffect struct {
	key, value    string
	beside        map[string]string // settings of both runs
	script        string
	with, without string
	noNamespaces  bool
}

const (
	askServer = `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://127.0.0.1:@PORT@/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3; tr -d '\r' <&3 | sed -n '1p;$p'`
	refusedBy = "HTTP/1.1 403 Forbidden\nassay-run: no connection to 127.0.0.1:@PORT@: "
	notListed = refusedBy + "the policy does not allow it (network.allowedDomains)"
	served    = "HTTP/1.1 200 OK\nhello"
	connects  = `@ATTACK@ unix @HOME@/socket >/dev/null 2>&1 && echo yes || echo no`
	listens   = `@ATTACK@ listen 127.0.0.1:0 >/dev/null 2>&1 && echo yes || echo no`
	reads     = `cat @HOME@/d/f 2>/dev/null || echo no`
	writes    = `echo new 2>/dev/null >@HOME@/d/new && echo yes || echo no`
)

var srtEffects = []srtEffect{
	{key: "network.allowedDomains", value: `["127.0.0.1:@PORT@"]`, script: askServer, with: served, without: notListed},
	{key: "network.deniedDomains", value: `["127.0.0.1"]`,
		beside: map[string]string{"network.allowedDomains": `["127.0.0.1:@PORT@"]`},
		script: askServer, with: refusedBy + "the policy does not allow it (network.deniedDomains[0])",
		without: served},
	{key: "network.deniedDomainReasons", value: `{"127.0.0.1": "use the mirror"}`,
		beside: map[string]string{"network.deniedDomains": `["127.0.0.1"]`},
		script: askServer, with: refusedBy + "use the mirror (network.deniedDomains[0])",
		without: refusedBy + "the policy does not allow it (network.deniedDomains[0])"},
	{key: "network.strictAllowlist", value: `true`, script: askServer, with: notListed, without: notListed},
	{key: "network.allowUnixSockets", value: `["@HOME@/socket"]`, script: connects, with: "yes", without: "no"},
	{key: "network.allowAllUnixSockets", value: `true`, script: connects, with: "yes", without: "no"},
	{key: "network.allowLocalBinding", value: `true`, script: listens, with: "yes", without: "yes"},
	{key: "filesystem.disabled", value: `true`, script: writes, with: "yes", without: "no"},
	{key: "filesystem.denyRead", value: `["@HOME@/d"]`, script: reads, with: "no", without: "secret"},
	{key: "filesystem.denyRead", value: `[{"path": "@HOME@/d", "literal": true}]`, script: reads, with: "no",
		without: "secret"},
	{key: "filesystem.allowRead", value: `["@HOME@/d/f"]`,
		beside: map[string]string{"filesystem.denyRead": `["@HOME@"]`}, script: reads, with: "secret", without: "no"},
	{key: "filesystem.allowWrite", value: `["@HOME@/d"]`, script: writes, with: "yes", without: "no"},
	{key: "filesystem.denyWrite", value: `["@HOME@/d"]`,
		beside: map[string]string{"filesystem.allowWrite": `["@HOME@"]`}, script: writes, with: "no", without: "yes"},
	{key: "filesystem.allowGitConfig", value: `true`,
		script: `echo '#' 2>/dev/null >>.git/config && echo yes || echo no`, with: "yes", without: "no"},
	{key: "credentials.files", value: `[{"path": "@HOME@/d/f", "mode": "deny"}]`, script: reads, with: "no",
		without: "secret"},
	{key: "credentials.envVars", value: `[{"name": "SRT_TOKEN", "mode": "deny"}]`, script: `echo ${SRT_TOKEN-no}`,
		with: "no", without: "secret"},
	{key: "enableWeakerNestedSandbox", value: `true`, script: `echo yes`, with: "yes", noNamespaces: true},
}

// srtInert are settings without effect: they are for another system, name helper programs that assay-run does not
// have, or mask what it hides.
var srtInert = [][2]string{
	{"mandatoryDenySearchDepth", `6`}, // everything is searched
	{"network.allowMachLookup", `["com.example.*"]`}, {"ignoreViolations", `{"*": ["/x"]}`},
	{"enableWeakerNetworkIsolation", `true`},
	{"allowAppleEvents", `true`}, {"allowPty", `true`}, {"ripgrep", `{"command": "rg", "args": ["-x"], "argv0": "rg"}`},
	{"seccomp", `{"applyPath": "/x", "argv0": "y"}`}, {"bwrapPath", `"/usr/bin/bwrap"`},
	{"socatPath", `"/usr/bin/socat"`}, {"javaAgentJarPath", `"/x.jar"`},
	{"windows", `{"backend": "x", "sandboxUser": "u", "sublayerGuid": "g", "wfpSublayerGuid": "g", "proxyPortRange": [1, 2], "srtWin": {"path": "p"}}`},
	{"credentials.allowPlaintextInject", `true`}, {"credentials.awsPairs", `[]`},
	{"allowNestedUserNamespaces", `false`}, {"network.requireHostMatch", `false`},
}

// srtRefused are settings that assay-run does not support, with the key that the
// error names.
var srtRefused = [][3]string{
	{"network.deniedResolvedAddresses", `["10.0.0.0/8"]`}, {"network.httpProxyPort", `8080`},
	{"network.socksProxyPort", `1080`},
	{"network.mitmProxy", `{"socketPath": "/x", "domains": ["a.b"]}`}, {"network.filterRequest", `"x"`},
	{"network.allowPlaintextHeaderSet", `true`},
	{"network.stripResponseHeaders", `["set-cookie"]`}, {"network.refuseOpaqueTunnels", `true`},
	{"network.requireHostMatch", `true`},
	{"network.ambiguousRequestTarget", `"refuse"`}, {"network.tlsTerminate", `{}`},
	{"network.parentProxy", `{"http": "http://proxy:3128"}`},
	{"credentials.files", `[{"path": "/x", "mode": "mask"}]`, "credentials.files[0].mode"},
	{"credentials.envVars", `[{"name": "T", "mode": "mask"}]`, "credentials.envVars[0].mode"},
	{"credentials.awsPairs", `[{"accessKeyIdVar": "A", "secretAccessKeyVar": "B"}]`},
	{"credentials.sigv4", `{"streaming": "deny"}`},
	{"allowNestedUserNamespaces", `true`}, {"git", `{"safeDirectories": ["/x"]}`}, {"mandatoryDenySearchDepth", `11`},
	{"filesystem.denyRead", `[{"path": "/x*", "literal": true}]`, "filesystem.denyRead[0]"},
	{"filesystem.denyRead", `[{"path": "/x", "literal": false}]`, "filesystem.denyRead[0]"},
	{"network.newSetting", `true`}, {"newSetting", `true`},
}

// srtMaskKeys say how a credential is masked; they have no effect in mode deny.
const srtMaskKeys = `"extract": "(x)", "onExtractNoMatch": "deny", "decode": "jwt", "maskClaims": ["c"], "injectHosts": ["a.example.org"]`

// srtSettings returns these settings with those that srt requires.
func srtSettings(t *testing.T, set map[string]string) string {
	t.Helper()
	all := map[string]map[string]json.RawMessage{
		"network": {"allowedDomains": json.RawMessage(`[]`), "deniedDomains": json.RawMessage(`[]`)},
		"filesystem": {"denyRead": json.RawMessage(`[]`), "allowWrite": json.RawMessage(`["."]`),
			"denyWrite": json.RawMessage(`[]`)},
	}
	top := map[string]any{"network": all["network"], "filesystem": all["filesystem"]}
	for key, value := range set {
		section, name, nested := strings.Cut(key, ".")
		if !nested {
			top[key] = json.RawMessage(value)
			continue
		}
		if all[section] == nil {
			all[section] = map[string]json.RawMessage{}
			top[section] = all[section]
		}
		all[section][name] = json.RawMessage(value)
	}
	data, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSRTKeys checks that each key of srt's settings changes a run, has no effect, or is refused by name.
func TestSRTKeys(t *testing.T) {
	tested := map[string]bool{}
	for _, e := range srtEffects {
		tested[e.key] = true
	}
	plain, err := sandboxfile.ParseSRT([]byte(srtSettings(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range srtInert {
		tested[in[0]] = true
		s, err := sandboxfile.ParseSRT([]byte(srtSettings(t, map[string]string{in[0]: in[1]})))
		if err != nil {
			t.Errorf("%s: %v", in[0], err)
			continue
		}
		if s.Env != nil && reflect.DeepEqual(*s.Env, sandboxfile.Env{}) {
			s.Env = nil
		}
		if !reflect.DeepEqual(s, plain) {
			t.Errorf("%s: %s changes the settings: %+v", in[0], in[1], s)
		}
	}
	for _, credential := range [][2]string{{"credentials.files", `"path": "/x", "maskDuplicates": true`},
		{"credentials.envVars", `"name": "T"`}} {
		s, err := sandboxfile.ParseSRT([]byte(srtSettings(t,
			map[string]string{credential[0]: `[{"mode": "deny", ` + credential[1] + `, ` + srtMaskKeys + `}]`})))
		if err != nil || len(s.Filesystem.DenyRead)+len(s.Env.Drop) != 1 {
			t.Errorf("%s with keys that deny ignores: %v", credential[0], err)
		}
	}
	for _, r := range srtRefused {
		tested[r[0]] = true
		name := r[2]
		if name == "" {
			name = r[0]
		}
		if _, err := sandboxfile.ParseSRT([]byte(srtSettings(t, map[string]string{r[0]: r[1]}))); err == nil ||
			!strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s: %s gives the error %v, which does not name %s", r[0], r[1], err, name)
		}
	}
	for key := range strings.FieldsSeq(srtKeys) {
		part := strings.Split(key, ".")
		if !tested[part[0]] && !tested[strings.Join(part[:min(len(part), 2)], ".")] {
			t.Errorf("%s: nothing tests this key", key)
		}
	}
}

// TestSRTEffects runs a script with each setting and without it.
func TestSRTEffects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello\n")
	}))
	defer server.Close()
	root := everybody[0]
	root.can(t)
	for _, e := range srtEffects {
		t.Run(e.key, func(t *testing.T) {
			j := shell(t, "")
			j.Home, j.NoNamespaces = filepath.Join(filepath.Dir(j.Dir), "home"), e.noNamespaces
			attack := filepath.Join(j.Home, "attack")
			for path, text := range map[string]string{
				filepath.Join(j.Dir, ".git/config"): "#", filepath.Join(j.Dir, "1/2/3/4/.git/config"): "#",
				filepath.Join(j.Home, "d/f"): "secret", attack: "#!/bin/sh\nexec " + binary(t) + " " + roleAttack +
					" \"$@\"\n",
			} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			l, err := net.Listen("unix", filepath.Join(j.Home, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
			fill := strings.NewReplacer("@PORT@", port, "@HOME@", j.Home, "@ATTACK@", attack).Replace
			j.Env, j.Args = []string{"SRT_TOKEN=secret"}, []string{"/bin/bash", "-c", fill(e.script)}
			for _, set := range []bool{true, false} {
				settings, want := map[string]string{}, e.without
				for key, value := range e.beside {
					settings[key] = fill(value)
				}
				if set {
					settings[e.key], want = fill(e.value), e.with
				}
				os.Remove(filepath.Join(j.Home, "d/new"))
				j.SRT = srtSettings(t, settings)
				o := root.run(t, j)
				if got := strings.TrimSpace(o.out); got != fill(want) || want != "" && o.Err != "" || want == "" &&
					o.Layer == "" {
					t.Errorf("with %s set: %v: the output is\n%s\nwant\n%s\n%s", e.key, set, got, fill(want),
						fmt.Sprintf("%+v", o))
				}
			}
		})
	}
}
