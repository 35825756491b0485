package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

// A client that names the daemon itself makes containers outside of the run. The health
// says so, and only then.
func TestAClientThatNamesTheDaemonIsNamed(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	e := enginetest.Docker(t)
	real := "unix://" + e.Socket
	for _, c := range []struct {
		name, script string
		want         bool
		flags        []string
	}{
		{"through the relay", `$E ps --quiet`, false, []string{"--containers"}},
		{"past the relay", `$E --host "$REAL" run --rm --network=none $IMAGE true`, true, []string{"--containers"}},
		{"without one", `$E ps --quiet`, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := withEngine(t, e, dir, c.script, append(c.flags, "--kernel", "require")...)
			cmd.Env = append(cmd.Env, "REAL="+real)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(docs.Health.Reasons, func(r schema.Reason) bool { return r.Code == "engine_asked" })
			if (i >= 0) != c.want || i >= 0 &&
				!strings.Contains(docs.Health.Reasons[i].Message, filepath.Base(e.Socket)) {
				t.Errorf("reasons: %+v", docs.Health.Reasons)
			}
		})
	}
}

// What the daemon does for the run outside of the run's containers is named, by the request. A
// path that the daemon's router has not is refused.
func TestWhatTheDaemonDoesElsewhereIsNamed(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	e := enginetest.Docker(t)
	e.Run("run", "-d", "--name=foreign", "--network=none", "-v", "kept:/data", enginetest.Image, "sleep", "600")
	curl := func(socket string) string {
		return `curl -s -o /dev/null -w '%{http_code}' --path-as-is --unix-socket "` + socket + `" -X POST http://d`
	}
	const relay = `${DOCKER_HOST#unix://}`
	for _, c := range []struct{ name, script, want string }{
		{"what is in the run", `
			$E run --rm --network=none --name=inside $IMAGE true
			$E run -d --name=box --network=none $IMAGE sleep 600
			$E exec box true; $E logs box; $E stop -t 0 box; $E rm -f box
			$E run --rm --network=none -v own:/x -v "$PWD:/here" $IMAGE true
			$E run --rm --network=none -v own:/x $IMAGE true
			$E ps; $E inspect foreign; $E rm -f nowhere || true`, ""},
		{"a published port", `$E run --rm --network=none -p 127.0.0.1::80 $IMAGE true`, "/containers/create"},
		{"all ports published", `$E run --rm --network=none -P $IMAGE true`, "/containers/create"},
		{"a volume that a foreign container has", `
			$E run --rm --network=none -v kept:/x $IMAGE true`, "/containers/create"},
		{"the same as a mount", `
			$E run --rm --network=none --mount type=volume,src=kept,dst=/x $IMAGE true`, "/containers/create"},
		{"a file that the daemon writes", `
			$E create --name=into --network=none $IMAGE true
			$E cp /etc/hostname into:/x; $E rm -f into`, "/containers/into/archive"},
		{"a file that the daemon reads", `
			$E create --name=from --network=none -v /etc:/host $IMAGE true
			$E cp from:/host/hostname .; $E rm -f from`, "/containers/from/archive"},
		{"a program that the daemon starts", `
			$E run -d --name=listed --network=none $IMAGE sleep 600
			$E top listed; $E rm -f listed`, "/containers/listed/top"},
		{"a cgroup parent of its own", `
			$E run --rm --network=none --cgroup-parent=/assay-own-$$ $IMAGE true
			rmdir /sys/fs/cgroup/*/assay-own-$$ 2>/dev/null || true`, "/containers/create"},
		{"a command in a foreign container", `$E exec foreign true`, "/containers/foreign/exec, POST /v"},
		{"the start of a foreign container", `$E restart -t 0 foreign`, "/containers/foreign/restart"},
		{"volumes of a foreign container", `
			$E run --rm --network=none --volumes-from foreign $IMAGE true`, "/containers/create"},
		{"the name of a link to a foreign container", `
			$E create --name=linking$$ --link foreign:al $IMAGE true
			$E restart -t 0 linking$$/al; $E rm -f linking$$`, "/al/restart"},
		{"logs that go to another host", `
			$E run --rm --network=none --log-driver=syslog --log-opt syslog-address=udp://127.0.0.1:9 $IMAGE true`,
			"/containers/create"},
		{"a volume that another host serves", `
			$E run --rm --network=none --mount type=volume,dst=/x,volume-opt=type=nfs,volume-opt=device=:/x,` +
			`volume-opt=o=addr=127.0.0.1 $IMAGE true || true`, "/containers/create"},
		{"a question to a registry", `
			curl -s --max-time 60 --unix-socket "` + relay + `" http://d/distribution/127.0.0.1:9%2Fx/json || true`,
			"GET /distribution/127.0.0.1:9%2Fx/json"},
		{"a login", `echo x | $E login -u x --password-stdin 127.0.0.1:9 || true`, "/auth"},
		{"a foreign container in a network", `
			$E network connect none foreign || true`, "/networks/none/connect"},
		{"a build", `
			mkdir -p b; printf 'FROM scratch\nCOPY x /x\n' >b/Dockerfile; touch b/x
			DOCKER_BUILDKIT=0 $E build -q b`, "/build"},
		{"a service", `$E service create $IMAGE true || true`, "/services/create"},
		{"paths of Podman", `test "$(` + curl(relay) + `/v4.0.0/libpod/containers/create)" = 404`,
			"POST /v4.0.0/libpod/containers/create"},
		{"two slashes", `test "$(` + curl(relay) + `//containers/create)" = 400
			test "$(` + curl(e.Socket) + `//containers/create)" = 301`, ""},
		{"dots", `test "$(` + curl(relay) + `/v1.43/x/../containers/create)" = 400
			test "$(` + curl(e.Socket) + `/v1.43/x/../containers/create)" = 301`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := withEngine(t, e, dir, c.script, "--containers", "--kernel", "off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, r := range docs.Health.Reasons {
				if r.Code == "engine_asked" {
					said = r.Message
				}
			}
			if (said != "") != (c.want != "") || !strings.Contains(said, c.want) {
				t.Errorf("engine_asked: %q", said)
			}
		})
	}
}

// The service of Podman behind Docker's variable is a daemon with further paths, which make containers elsewhere.
func TestWhatPodmansServiceDoesElsewhereIsNamed(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	e := enginetest.Podman(t)
	e.Serve()
	e.Run("run", "-d", "--name=foreign", "--network=none", enginetest.Image, "sleep", "600")
	ask := func(method, path, body, answer string) string {
		return `test "$(curl -s -o answer -w '%{http_code}' --path-as-is --unix-socket "${DOCKER_HOST#unix://}" -X ` + method +
			` -H 'Content-Type: application/json' -d '` + body + `' http://d` + path + `)" = ` + answer +
			` || { cat answer; exit 1; }
`
	}
	const made = `{"Image":"` + enginetest.Image + `","Cmd":["true"],"HostConfig":{"NetworkMode":"none"}}`
	for _, c := range []struct{ name, script, want string }{
		{"a container in the run", ask("POST", "/v1.40/containers/create?name=inside", made, "201") +
			ask("DELETE", "/v1.40/containers/inside?force=true", "", "204"), ""},
		{"a container by Podman's own path", ask("POST", "/v4.0.0/libpod/containers/create",
			`{"image":"`+enginetest.Image+`","name":"own","command":["true"],"netns":{"nsmode":"none"}}`, "201") +
			ask("DELETE", "/v4.0.0/libpod/containers/own?force=true", "", "200"), "/libpod/containers/create"},
		{"a version that Docker does not have", ask("POST", "/v4.0.0-rc1/containers/create?name=odd", made, "201") +
			ask("DELETE", "/v1.40/containers/odd?force=true", "", "204"), "/v4.0.0-rc1/containers/create"},
		{"a command in a foreign container", ask("POST", "/v1.40/containers/foreign/exec",
			`{"Cmd":["true"]}`, "201"), "/v1.40/containers/foreign/exec"},
		{"the same by Podman's own path", ask("POST", "/v4.0.0/libpod/containers/foreign/exec",
			`{"Cmd":["true"]}`, "201"), "/libpod/containers/foreign/exec"},
		{"two slashes", ask("POST", "//libpod/containers/create", "{}", "400"), ""},
		{"dots", ask("POST", "/v4.0.0/x/../libpod/containers/create", "{}", "400"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := withEngine(t, e, dir, c.script, "--containers", "--kernel", "off")
			cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+e.Socket)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, r := range docs.Health.Reasons {
				if r.Code == "engine_asked" {
					said = r.Message
				}
			}
			if (said != "") != (c.want != "") || !strings.Contains(said, c.want) {
				t.Errorf("engine_asked: %q", said)
			}
		})
	}
}
