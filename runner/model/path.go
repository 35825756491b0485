package model

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// providers are the hosts of model providers. A name that starts with a dot stands for all hosts below it, one that
// starts with a hyphen for all names that end so.
var providers = []string{
	"api.anthropic.com", ".anthropic.com", "claude.ai",
	"api.openai.com", ".openai.com", "chatgpt.com", ".chatgpt.com", ".openai.azure.com",
	"generativelanguage.googleapis.com", "aiplatform.googleapis.com", "-aiplatform.googleapis.com",
	"cloudcode-pa.googleapis.com",
	"api.mistral.ai", "api.deepseek.com", "api.groq.com", "api.x.ai", "api.together.xyz", "api.cohere.com",
	"api.fireworks.ai", "openrouter.ai", "opencode.ai", "models.github.ai", "api.githubcopilot.com",
	".githubcopilot.com", "router.huggingface.co", "api.perplexity.ai", "api.moonshot.ai", "api.z.ai",
}

// isProvider reports whether a host belongs to a provider.
func isProvider(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.HasPrefix(name, "bedrock-") && strings.HasSuffix(name, ".amazonaws.com") {
		return true
	}
	return slices.ContainsFunc(providers, func(p string) bool {
		return name == p || strings.HasPrefix(p, ".") && strings.HasSuffix(name, p) ||
			strings.HasPrefix(p, "-") && strings.HasSuffix(name, p)
	})
}

// maxWays limits what a Path remembers.
const maxWays = 8192

// Path finds, in the kernel layer, whether the command could have reached a model without the endpoint. One goroutine
// calls Event; Health is called after it has ended.
type Path struct {
	endpoint string
	own      map[string]bool // hosts of the upstreams, as in events: names, or addresses with a port
	ways     map[string]*way
	crowded  bool
}

// way is a remote endpoint that processes reached or tried to reach.
type way struct {
	exec    *uint64
	exe     string
	name    string // a provider's name, or empty
	named   bool   // it has a name
	dns     bool   // it answered DNS questions
	agent   bool   // the command asked for it
	check   bool   // a check asked for it
	out, in uint64
}

// NewPath makes a Path. endpoint is the gateway's own address.
func NewPath(endpoint string, routes []Route) *Path {
	p := &Path{endpoint: endpoint, own: map[string]bool{}, ways: map[string]*way{}}
	for _, r := range routes {
		host, port := r.Upstream.Hostname(), r.Upstream.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[r.Upstream.Scheme]
		}
		p.own[strings.ToLower(host)] = true
		p.own[net.JoinHostPort(host, port)] = true
		if host == "localhost" {
			p.own["127.0.0.1:"+port], p.own["[::1]:"+port] = true, true
		}
	}
	return p
}

// Event handles an event of the kernel layer. exe is what its process executes.
func (p *Path) Event(e *schema.KernelEvent, exe string) {
	switch e.Kind {
	case schema.KindConnect, schema.KindSendto, schema.KindForeignSocket, schema.KindInherited:
		if w := p.at(e.Value, e); w != nil && e.Class != schema.ClassRunner {
			w.asked(e, exe)
		}
	case schema.KindTLS:
		if w := p.at(e.Remote, e); w != nil {
			w.asked(e, exe)
			w.see(p, e.Value)
		}
	case schema.KindDNS:
		if w := p.at(e.Remote, e); w != nil {
			w.dns = true
		}
	case schema.KindFlow:
		if w := p.at(e.Value, e); w != nil {
			w.out, w.in = w.out+e.BytesOut, w.in+e.BytesIn
		}
	}
}

// at returns the way to an address; nil for the gateway itself and for what is not an address.
func (p *Path) at(address string, e *schema.KernelEvent) *way {
	if address == "" || address == p.endpoint || strings.HasPrefix(address, "unix:") {
		return nil
	}
	w := p.ways[address]
	if w == nil {
		if len(p.ways) == maxWays {
			p.crowded = true
			return nil
		}
		w = &way{}
		p.ways[strings.Clone(address)] = w
	}
	for _, name := range e.Names {
		w.see(p, name)
	}
	return w
}

// see records a name of the endpoint.
func (w *way) see(p *Path, name string) {
	w.named = w.named || name != ""
	if w.name == "" && (isProvider(name) || p.own[strings.ToLower(name)]) {
		w.name = strings.Clone(name)
	}
}

// asked records who asked for the endpoint.
func (w *way) asked(e *schema.KernelEvent, exe string) {
	if e.Class == schema.ClassCheck {
		w.check = true
		return
	}
	w.agent = true
	if w.exec == nil && e.ExecID != 0 {
		w.exec, w.exe = new(e.ExecID), strings.Clone(exe)
	}
}

// bypasses are the ways by which the command may have reached a model without the gateway.
func (p *Path) bypasses() []schema.ModelBypass {
	var all []schema.ModelBypass
	for address, w := range p.ways {
		if w.out+w.in == 0 || w.check && !w.agent {
			continue
		}
		if w.name == "" && !p.own[address] && (w.named || w.dns || !public(address)) {
			continue
		}
		all = append(all, schema.ModelBypass{Endpoint: address, Name: w.name, ExecID: w.exec, Exe: w.exe,
			BytesOut: w.out, BytesIn: w.in})
	}
	slices.SortFunc(all, func(a, b schema.ModelBypass) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	return all
}

// public reports whether an address is, or may be, on the internet.
func public(address string) bool {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return true
	}
	a := at.Addr().Unmap()
	return !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}

// Codes of the reasons about the path.
const (
	reasonBypass  = "model_bypass_possible"
	reasonUnclear = "model_path_unknown"
)

const sealedRemedy = "run with --mode workspace-write, where the gateway is the only way out"

// maxNamed limits how many bypasses get a reason of their own.
const maxNamed = 8

// Health reports how the command could reach models. h already has the kernel layer's claims. sealed means that the
// sandbox left the command no other way out.
func (p *Path) Health(h *schema.ObservationHealth, sealed bool) {
	h.ModelBypasses = p.bypasses()
	why := p.unclear(h)
	switch {
	case sealed:
		h.ModelPath, h.ModelBypasses = schema.ModelPathOnly, nil
	case len(h.ModelBypasses) > 0:
		h.ModelPath = schema.ModelPathBypass
		for _, b := range h.ModelBypasses[:min(len(h.ModelBypasses), maxNamed)] {
			h.Reasons = append(h.Reasons, schema.Reason{Subject: "model", Code: reasonBypass, Remedy: sealedRemedy,
				Message: fmt.Sprintf("%s reached %s, which may have answered for a model: %d bytes out, %d in",
					cmp.Or(b.Exe, "a process"), b.Where(), b.BytesOut, b.BytesIn)})
		}
	case why == "":
		h.ModelPath = schema.ModelPathAlone
	default:
		h.ModelPath = schema.Unknown
		h.Reasons = append(h.Reasons, schema.Reason{Subject: "model", Code: reasonUnclear, Remedy: sealedRemedy,
			Message: "the command may have reached a model without the gateway: " + why})
	}
}

// blind are the blind spots that can hide a remote host.
var blind = []string{"io_uring_unseen", "many_endpoints", "io_uring_accepts", "other_sockets"}

// unclear returns why the kernel layer may lack hosts that the command reached; empty: it lacks none.
func (p *Path) unclear(h *schema.ObservationHealth) string {
	switch {
	case h.KernelLayer == schema.Absent:
		return "there is no kernel layer"
	case h.KernelLayer != schema.Complete:
		return "the kernel layer is not complete"
	case h.CgroupCorrelation != schema.Clean:
		return "some of its processes were not kept in its cgroup"
	case h.NetworkEndpointClaimScope != schema.PeerSet || p.crowded:
		return "the list of the hosts that it reached may not be whole"
	case slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool { return r.Code == "engine_asked" }):
		return "it asked a container engine, whose containers were not observed"
	}
	for _, c := range h.Coverage {
		for _, s := range c.KnownBlindSpots {
			if slices.Contains(blind, s.ID) && (s.Exercised == nil || *s.Exercised) {
				return "what it did may not have been seen: " + s.Name
			}
		}
	}
	return ""
}
