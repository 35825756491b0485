package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Home is the command's home directory in effect.
type Home struct {
	schema.Home
	needed bool   // the command does not start without a private home
	login  *login // nil: there is none
}

// login is the file that Home.Login is about.
type login struct {
	inside string // below the home
	before []byte // its content when the run started
}

// maxWritten limits Home.Written (see schema.Home).
const maxWritten = 10_000

const ruleHome = "home"

// ruleHomeLimit is the rule for the files of a private home that are above Limits.Home.
const ruleHomeLimit = "limits.home"

// homeLooked limits the search for such files if nobody sets Limits.Home, and homeAbove the number of them.
const homeLooked, homeAbove = 2_000, 256

// ruleSecrets is the rule for the files in Secrets.
const ruleSecrets = "secrets"

// setHome sets what the command's home is, and hides in it what belongs to other programs.
func (p *Profile) setHome(s *sandboxfile.Settings, c Context) error {
	if s.Exact || p.open { // formats of other sandboxes, which say everything
		if s.Home == sandboxfile.HomePrivate || s.HomeLayer != "" {
			return fmt.Errorf("home: private is not possible with these settings, which list every path that can be " +
				"written")
		}
		return nil
	}
	at := lookup(s.Env.Apply(c.Env), "HOME")
	if p.User != nil || !filepath.IsAbs(at) {
		at = c.Home
	}
	real, err := filepath.EvalSymlinks(at)
	info, serr := os.Stat(real)
	h := &Home{Home: schema.Home{Path: at, State: sandboxfile.HomeReal, Layer: s.HomeLayer},
		needed: s.Home == sandboxfile.HomePrivate || s.HomeLayer != ""}
	p.Home = h
	switch {
	case at == "":
		h.Reason = "there is no home directory: HOME is not set"
	case err != nil:
		h.Reason = err.Error()
	case serr != nil || !info.IsDir():
		h.Reason = "it is not a directory"
	case real == "/":
		h.Reason = "the home directory is /"
	default:
		h.Path = real
		p.hideSecrets(real, s.Hidden)
		switch {
		case s.Home == sandboxfile.HomeReal:
		case schema.Below(real, p.Dir):
			h.Reason = fmt.Sprintf("the home directory is in the working directory %s, which is always real", p.Dir)
			h.needed = false
		case s.Filesystem != nil && slices.ContainsFunc(p.Write, func(w Path) bool {
			return w.Path == real && w.Rule != RuleMode
		}):
			h.Reason, h.needed = "a rule allows writing all of it", false
		default:
			h.State = sandboxfile.HomePrivate
			h.setLogin(s.Login)
		}
	}
	if h.State == sandboxfile.HomeReal && h.needed {
		return &HomeError{Reason: h.Reason}
	}
	return nil
}

// HomeError says why the command cannot have a private home.
type HomeError struct{ Reason string }

func (e *HomeError) Error() string { return "there is no private home for the command: " + e.Reason }

// Remedy says what to do.
func (e *HomeError) Remedy() string {
	return "name a directory outside of the home, on a disk or in memory, with --home-layer; or choose --home real"
}

// hideSecrets hides those of Secrets that exist. A link to something outside of the home is somebody's choice, and its
// target is hidden.
func (p *Profile) hideSecrets(home string, more []string) {
	for _, path := range slices.Concat(Secrets, more) {
		at := filepath.Join(home, strings.TrimPrefix(path, "~/"))
		if real, err := filepath.EvalSymlinks(at); err == nil && !schema.Below(p.Dir, real) {
			p.DenyRead = append(p.DenyRead, Path{real, ruleSecrets})
		}
	}
}

// maxLogin limits a file with a login, in bytes.
const maxLogin = 1 << 20

// setLogin looks for the command's login in the home.
func (h *Home) setLogin(path string) {
	inside, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return
	}
	real, err := filepath.EvalSymlinks(filepath.Join(h.Path, inside))
	if err != nil {
		return
	}
	data, err := config.ReadFile(real, maxLogin)
	if err != nil || len(data) > maxLogin {
		return
	}
	h.Login, h.login = &schema.HomeLogin{Path: real, State: schema.LoginUnchanged}, &login{inside, data}
}

// realHome is p with the real home. why is why the private one cannot be had; empty: it is not wanted.
func (p *Profile) realHome(why string) {
	if p.Home == nil || p.Home.State == sandboxfile.HomeReal {
		return
	}
	home := *p.Home
	home.State, home.Reason, home.Layer, home.Login, home.login, p.Home = sandboxfile.HomeReal, why, "", nil, nil, &home
	_ = p.settle() // there are fewer rules than before
}

// settleHome makes the plan, and gives up a private home that a rule hides. limit is Limits.Home.
func (p *Profile) settleHome(limit config.Bytes) error {
	if h := p.Home; h != nil && h.State == sandboxfile.HomePrivate {
		real := append([]Path{{p.Dir, ruleWorkdir}}, slices.Concat(p.Write, p.DenyRead, p.Private)...)
		// Through an overlay, nobody connects to a socket of the directory below.
		for _, at := range append(mountPoints(), p.shown...) {
			inside := func(path string) bool { return schema.Below(path, h.Path) && path != h.Path }
			covers := func(r Path) bool { return inside(r.Path) && schema.Below(at, r.Path) }
			if inside(at) && !slices.ContainsFunc(real, covers) {
				p.homeMounts = append(p.homeMounts, at)
			}
		}
		p.homeMounts = startup.Outermost(p.homeMounts)
	}
	if err := p.settle(); err != nil || p.Home == nil || p.Home.State == sandboxfile.HomeReal {
		return err
	}
	if l := p.Home.Login; l != nil && p.Plan.Path(l.Path).Access != AccessLayer {
		p.Home.Login, p.Home.login = nil, nil // the command gets the real file, or none
	}
	if e := p.Plan.Path(p.Home.Path); e.Access != AccessLayer {
		p.realHome(e.Rule + " decides about all of it")
		return nil
	}
	above, err := p.aboveLimit(limit)
	if err != nil || len(above) == 0 {
		return err
	}
	p.DenyWrite = append(p.DenyWrite, above...)
	return p.settle()
}

// aboveLimit lists the files that the layer of the private home must not copy, those nearest to the home first. What
// cannot be read is left out: the command cannot read it either.
func (p *Profile) aboveLimit(limit config.Bytes) (above []Path, err error) {
	most := cmp.Or(limit, sandboxfile.DefaultHomeLimit)
	looked := 0
	for dirs := []string{p.Home.Path}; len(dirs) > 0; dirs = dirs[1:] {
		if p.Plan.Path(dirs[0]).Access != AccessLayer {
			continue // it is not in the layer
		}
		entries, _ := os.ReadDir(dirs[0])
		for _, e := range entries {
			if looked++; limit == 0 && looked > homeLooked {
				return above, nil
			}
			at := filepath.Join(dirs[0], e.Name())
			if e.IsDir() {
				dirs = append(dirs, at)
			}
			if !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if err != nil || info.Size() <= int64(most) || p.Plan.Path(at).Access != AccessLayer {
				continue
			}
			if len(above) == homeAbove {
				if limit != 0 {
					return nil, fmt.Errorf("limits.home: more than %d files of the home are larger than %s; set a "+
						"larger limit", homeAbove, most.String())
				}
				return above, nil
			}
			above = append(above, Path{at, ruleHomeLimit})
		}
	}
	return above, nil
}

// homeClaims are what the private home says about paths: mounts and sockets in it stay what they are.
func (p *Profile) homeClaims() []claim {
	if p.Home == nil || p.Home.State != sandboxfile.HomePrivate {
		return nil
	}
	claims := []claim{{Path: Path{p.Home.Path, ruleHome}, says: AccessLayer}}
	for _, at := range p.homeMounts {
		claims = append(claims, claim{Path: Path{at, ruleHome}, says: AccessRead, keep: true})
	}
	if p.Mode == sandboxfile.ReadOnly && schema.Below(p.Dir, p.Home.Path) {
		claims = append(claims, claim{Path: Path{p.Dir, ruleWorkdir}, says: AccessRead, keep: true})
	}
	return claims
}
