package engine

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// Kubernetes is the name under which Pods are selected and recorded. Find does not know it.
const Kubernetes = "kubernetes"

// Limits on what Pods remembers.
const (
	maxPods    = 20_000 // including those that have ended
	maxDeleted = 512
	maxImages  = 2 << 10 // bytes of a bundle's label
)

// Pods are the pods of one node, as Kubernetes' API server reports them. To a Watcher, each pod is a Container: its
// ID is the pod's uid, and New means that the pod has not ended. The methods are safe for concurrent use.
type Pods struct {
	api       apiServer
	namespace string // empty for all
	node      string
	cgroups   kubepods

	// Only Events uses these fields. It has one call at a time.
	listed bool
	idle   int // requests since the last one that reported anything new

	mu      sync.Mutex
	pods    map[string]*pod // by uid
	deleted []string        // uids in pods, oldest first
}

// pod is what Pods knows about a pod.
type pod struct {
	Container
	ran     bool          // one of its containers has run
	joined  bool          // Tree has opened its cgroup
	refused bool          // Tree could not, and said so
	over    chan struct{} // closed when it has ended or was deleted
}

func (p *pod) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// podObject has the fields of a pod that Pods reads (Pod v1 core).
type podObject struct {
	Metadata struct {
		UID             string `json:"uid"`
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		InitContainers []specContainer `json:"initContainers"`
		Containers     []specContainer `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase                 string            `json:"phase"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type specContainer struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

type containerStatus struct {
	RestartCount int `json:"restartCount"`
	State        struct {
		Running    *struct{} `json:"running"`
		Terminated *struct{} `json:"terminated"`
	} `json:"state"`
}

func (o *podObject) ended() bool {
	return o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed"
}

// ran reports whether a container of the pod has run: a pod can fail before.
func (o *podObject) ran() bool {
	for _, list := range [][]containerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
		for _, s := range list {
			if s.RestartCount > 0 || s.State.Running != nil || s.State.Terminated != nil {
				return true
			}
		}
	}
	return o.Status.Phase == "Succeeded"
}

// container describes the pod. Image has the name and image of each container.
func (o *podObject) container() Container {
	var images strings.Builder
	for _, list := range [][]specContainer{o.Spec.InitContainers, o.Spec.Containers} {
		for _, c := range list {
			fmt.Fprintf(&images, " %s=%s", c.Name, c.Image)
		}
	}
	image := strings.TrimPrefix(images.String(), " ")
	return Container{
		ID: o.Metadata.UID, Name: o.Metadata.Namespace + "/" + o.Metadata.Name,
		Image: image[:min(len(image), maxImages)],
		New:   !o.ended(),
	}
}

// Names of namespaces and nodes in the API. A uid becomes part of a path.
var (
	nameForm = sync.OnceValue(
		func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`) },
	)
	uidForm = sync.OnceValue(
		func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,62}[A-Za-z0-9])?$`) },
	)
)

// InPod returns the pods of this pod's node, in one namespace, or in all if it is empty. It uses the pod's service
// account, and does not connect.
func InPod(namespace string) (*Pods, error) {
	host, node := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("NODE_NAME")
	switch {
	case host == "":
		return nil, &KubernetesError{
			errors.New("KUBERNETES_SERVICE_HOST is not set"),
			"run assay-run in a pod, as docs/kubernetes/daemonset.yaml does",
		}
	case !nameForm().MatchString(node):
		return nil, &KubernetesError{
			fmt.Errorf("NODE_NAME is %q, and not the name of a node", node),
			"set it in the pod's env, with fieldRef: {fieldPath: spec.nodeName}",
		}
	case namespace != "" && !nameForm().MatchString(namespace):
		return nil, fmt.Errorf("%q is not the name of a namespace", namespace)
	}
	return &Pods{
		api:       apiServer{host: host, port: cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"), account: account},
		namespace: namespace, node: node, pods: map[string]*pod{}, cgroups: kubepods{mount: cgroupMount()},
	}, nil
}

var (
	labelKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
	})
	labelValue = sync.OnceValue(
		func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`) },
	)
)

// Watch is like Engine.Watch, but also joins, late, the pods that ran before.
func (p *Pods) Watch(ctx context.Context, label string, w Watcher) error {
	key, value, _ := strings.Cut(label, "=")
	if !labelKey().MatchString(key) || !labelValue().MatchString(value) {
		return fmt.Errorf("%q is not a label of Kubernetes, KEY=VALUE or KEY", label)
	}
	return watch(ctx, p, label, w)
}

// Labels are the labels of a pod's bundle.
func (p *Pods) Labels(c *Container) map[string]string {
	namespace, name, _ := strings.Cut(c.Name, "/")
	return map[string]string{
		"container_engine": Kubernetes, "pod_uid": c.ID, "pod_namespace": namespace, "pod_name": name,
		"pod_containers": c.Image, "node_name": p.node,
	}
}

// List returns the uids of the known pods that have not ended.
func (p *Pods) List(context.Context, string) (uids []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, known := range p.pods {
		if !known.ended() {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// Container returns a known pod by its uid.
func (p *Pods) Container(_ context.Context, uid string) (*Container, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.pods[uid]
	if known == nil {
		return nil, fmt.Errorf("pod %s: %w", uid, ErrNotFound)
	}
	c := known.Container
	c.New = !known.ended()
	return &c, nil
}

// note records what the API server says about a pod, and calls fn with the resulting events.
func (p *Pods) note(o *podObject, deleted bool, fn func(Event)) error {
	uid := o.Metadata.UID
	if !uidForm().MatchString(uid) {
		return fmt.Errorf("%q is not the uid of a pod", uid)
	}
	p.mu.Lock()
	known, over := p.pods[uid], deleted || o.ended()
	wasOver, joined, isNew := known != nil && known.ended(), known != nil && known.joined, known == nil
	switch {
	case isNew && len(p.pods) >= maxPods:
		p.mu.Unlock()
		return fmt.Errorf("the API server reports more than %d pods on this node", maxPods)
	case isNew, wasOver && !over: // the second if it has the label again
		known = &pod{over: make(chan struct{}), joined: joined}
		p.pods[uid] = known
	}
	known.Container, known.ran = o.container(), known.ran || o.ran()
	if over && !known.ended() {
		close(known.over)
	}
	if deleted {
		p.forget(uid)
	}
	c, ran := known.Container, known.ran
	p.mu.Unlock()
	if isNew || over != wasOver {
		p.idle = 1
	}
	ev := Event{ID: uid, Name: c.Name, Image: c.Image}
	switch {
	case !over:
		ev.Action = "create"
	case isNew && ran:
		ev.Action = "start" // Container then says that it has ended
	case !wasOver:
		ev.Action = "die"
	}
	if ev.Action != "" {
		fn(ev)
	}
	if over {
		fn(Event{Action: "destroy", ID: uid})
	}
	return nil
}

// forget drops the oldest deleted pods if there are many. p.mu is locked.
func (p *Pods) forget(uid string) {
	p.deleted = append(p.deleted, uid)
	if len(p.deleted) <= maxDeleted {
		return
	}
	oldest := p.deleted[0]
	p.deleted = p.deleted[1:]
	if known := p.pods[oldest]; known != nil && known.ended() {
		delete(p.pods, oldest)
	}
}

// vanished records that pods are no longer in the API server's list.
func (p *Pods) vanished(seen map[string]bool, fn func(Event)) {
	p.mu.Lock()
	var lost []string
	for uid, known := range p.pods {
		switch {
		case seen[uid]:
		case known.ended():
			delete(p.pods, uid)
		default:
			close(known.over)
			lost = append(lost, uid)
			p.forget(uid)
		}
	}
	p.mu.Unlock()
	for _, uid := range lost {
		fn(Event{Action: "die", ID: uid})
		fn(Event{Action: "destroy", ID: uid})
	}
}

// Tree opens the cgroup of a pod. The API server announces the pod before the kubelet makes the cgroup, so Tree waits
// for it. The error is ErrEnded if the pod ran and ended before Tree saw its cgroup, ErrRemoved if nothing of it is
// left to record, or ctx's.
func (p *Pods) Tree(ctx context.Context, c *Container) (*tree.Tree, error) {
	p.mu.Lock()
	known := p.pods[c.ID]
	again, refused := known != nil && known.joined, known == nil || known.refused
	p.mu.Unlock()
	if refused {
		return nil, fmt.Errorf("pod %s: %w", c.Name, ErrRemoved)
	}
	often := 10 * time.Millisecond
	if again {
		often = patience
	}
	for {
		// Check this before the directory: a pod that has ended by now makes no more cgroups.
		ended, stopped := known.ended(), ctx.Err()
		t, err := p.open(c.ID)
		if err != nil {
			p.mu.Lock()
			known.refused = true
			p.mu.Unlock()
			return nil, err
		}
		if t != nil {
			// Nothing has run yet in an empty cgroup, or the kubelet will remove it.
			if used, _ := t.Populated(); used || !again && !ended && stopped == nil {
				p.mu.Lock()
				known.joined = true
				p.mu.Unlock()
				return t, nil
			}
			t.Close()
		}
		switch {
		case ended:
			p.mu.Lock()
			defer p.mu.Unlock()
			if known.ran && !again {
				return nil, fmt.Errorf("pod %s: %w", c.Name, ErrEnded)
			}
			return nil, fmt.Errorf("pod %s: %w", c.Name, ErrRemoved)
		case stopped != nil:
			return nil, stopped
		}
		select {
		case <-ctx.Done():
		case <-known.over:
		case <-time.After(often):
		}
	}
}

// open opens the cgroup of a pod. It returns nil if the pod has none.
func (p *Pods) open(uid string) (*tree.Tree, error) {
	dir := p.cgroups.find(uid)
	if dir == "" {
		return nil, nil
	}
	t, err := tree.Open(dir)
	if err != nil {
		if _, gone := os.Stat(dir); gone != nil {
			return nil, nil
		}
	}
	return t, err
}

// Follow waits for the end of a pod, and calls stop if no process is in its cgroup by then, which may never have had
// one. A pod that was deleted from the API may still run.
func (p *Pods) Follow(ctx context.Context, c *Container, t *tree.Tree, stop context.CancelCauseFunc) {
	p.mu.Lock()
	known := p.pods[c.ID]
	p.mu.Unlock()
	if known != nil {
		select {
		case <-ctx.Done():
			return
		case <-known.over:
		}
	}
	if used, err := t.Populated(); err == nil && !used {
		stop(stopped{errors.New("the pod ended")})
	}
}

// kubepods finds the cgroups of pods by the kubelet's naming: see "Cgroups" in Kubernetes' pod resource management
// design, and cgroup_manager_linux.go.
type kubepods struct {
	mount string // of the cgroup2 hierarchy

	mu     sync.Mutex
	roots  []string  // the directories that contain all pods' cgroups
	looked time.Time // when roots was filled
}

// cgroupMount returns where the cgroup2 hierarchy is mounted, which on a hybrid host is next to the others.
func cgroupMount() string {
	var fs unix.Statfs_t
	if unified := "/sys/fs/cgroup/unified"; unix.Statfs(unified, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return unified
	}
	return "/sys/fs/cgroup"
}

// find returns a pod's directory, or an empty string if there is none.
func (k *kubepods) find(uid string) string {
	for _, root := range k.dirs() {
		for _, class := range []string{"", "burstable", "besteffort"} {
			dir := filepath.Join(root, class, "pod"+uid)
			if slice, ok := strings.CutSuffix(filepath.Base(root), ".slice"); ok { // systemd driver
				within := root
				if class != "" {
					slice += "-" + class
					within = filepath.Join(root, slice+".slice")
				}
				dir = filepath.Join(within, slice+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
			}
			if info, err := os.Lstat(dir); err == nil && info.IsDir() {
				return dir
			}
		}
	}
	return ""
}

// Limits of the search for roots.
const (
	maxDepth = 4 // a kubelet's --cgroup-root may be below another directory
	maxDirs  = 10_000
)

// dirs returns the kubelet's directories. A kubelet makes them when it starts, so dirs searches for new ones at most
// once a second.
func (k *kubepods) dirs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) < time.Second {
		return k.roots
	}
	k.roots, k.looked = nil, time.Now()
	list, seen := []string{k.mount}, 0
	for range maxDepth {
		var below []string
		for _, dir := range list {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				name := e.Name()
				if seen++; seen > maxDirs {
					return k.roots
				}
				switch {
				case !e.IsDir(), name == "user.slice", strings.HasSuffix(name, ".service"),
					strings.HasSuffix(name, ".scope"):
				case name == "kubepods", name == "kubepods.slice", strings.HasSuffix(name, "-kubepods.slice"):
					k.roots = append(k.roots, filepath.Join(dir, name))
				default:
					below = append(below, filepath.Join(dir, name))
				}
			}
		}
		list = below
	}
	return k.roots
}

// Limits on the API server's answers and on how long they may take.
const (
	maxPage     = 32 << 20 // bytes of a page of a list
	maxPages    = 100
	maxPodEvent = 4 << 20 // bytes; etcd keeps objects of 1.5 MiB
	listTime    = time.Minute
	watchTime   = 5 * time.Minute // the server then ends the watch, and Events starts another
	slowest     = 5 * time.Second // between two attempts
)

// errGone means that the API server no longer has the version at which a watch starts.
var errGone = errors.New("the API server no longer has that resource version")

// Events is like Engine.Events, for the node's pods with a label. It ignores the filter's name. The first call
// reports no events of the pods that List returns.
func (p *Pods) Events(ctx context.Context, _, label string, listening func(), fn func(Event)) error {
	client, err := p.api.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	version := ""
	for told := false; ; {
		if err := p.pause(ctx); err != nil {
			return err
		}
		if version == "" {
			if version, err = p.list(ctx, client, label, fn); err != nil {
				return err
			}
		}
		next, err := p.watch(ctx, client, label, version, func() {
			if !told {
				told = true
				listening()
			}
		}, fn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGone):
			next = ""
		case err != nil && (next == version || !told): // it reported nothing
			return err
		}
		version = next
	}
}

// pause waits before a request, longer after each one that reported nothing.
func (p *Pods) pause(ctx context.Context) error {
	n := p.idle
	p.idle++
	if n == 0 {
		return ctx.Err()
	}
	wait := min(patience<<min(n-1, 10), slowest)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait/2 + rand.N(wait/2)): // so that nodes do not ask at the same time
		return nil
	}
}

func (p *Pods) query(label string) url.Values {
	return url.Values{"labelSelector": {label}, "fieldSelector": {"spec.nodeName=" + p.node}}
}

func (p *Pods) path() string {
	if p.namespace == "" {
		return "/api/v1/pods"
	}
	return "/api/v1/namespaces/" + p.namespace + "/pods"
}

// list records all pods, and returns the version from which a watch continues.
func (p *Pods) list(ctx context.Context, client *http.Client, label string, fn func(Event)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	if !p.listed { // Watch asks List for these
		fn = func(Event) {}
	}
	query := p.query(label)
	query.Set("limit", "500")
	seen := map[string]bool{}
	for range maxPages {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []podObject `json:"items"`
		}
		body, err := p.api.get(ctx, client, "list", p.path(), query)
		if errors.Is(err, errGone) { // the server no longer has the next page
			err = p.api.failed(err)
		}
		if err != nil {
			return "", err
		}
		err = json.NewDecoder(io.LimitReader(body, maxPage)).Decode(&page)
		body.Close()
		if err == nil && page.Metadata.ResourceVersion == "" {
			err = errors.New("it has no resourceVersion")
		}
		if err != nil {
			return "", p.api.failed(fmt.Errorf("read the list of pods: %w", err))
		}
		for i := range page.Items {
			seen[page.Items[i].Metadata.UID] = true
			if err := p.note(&page.Items[i], false, fn); err != nil {
				return "", p.api.failed(err)
			}
		}
		if page.Metadata.Continue == "" {
			p.vanished(seen, fn)
			p.listed = true
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return "", p.api.failed(fmt.Errorf("the list of pods has more than %d pages", maxPages))
}

// watch records what happens to the pods after a version. It returns the version that it reached, and nil if the
// server ended the watch normally.
func (p *Pods) watch(
	ctx context.Context, client *http.Client, label, version string, listening func(), fn func(Event),
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+listTime)
	defer cancel()
	query := p.query(label)
	query.Set("watch", "1")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", fmt.Sprint(int(watchTime.Seconds())))
	body, err := p.api.get(ctx, client, "watch", p.path(), query)
	if err != nil {
		return version, err
	}
	defer body.Close()
	listening()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxPodEvent)
	for lines.Scan() {
		var ev struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return version, p.api.failed(fmt.Errorf("read an event: %w", err))
		}
		if ev.Type == "ERROR" {
			return version, p.api.status(ev.Object)
		}
		var o podObject
		err := json.Unmarshal(ev.Object, &o)
		if err == nil && ev.Type != "BOOKMARK" {
			err = p.note(&o, ev.Type == "DELETED", fn)
		}
		if err == nil && o.Metadata.ResourceVersion == "" {
			err = errors.New("it has no resourceVersion")
		}
		if err != nil {
			return version, p.api.failed(fmt.Errorf("read an event of the type %q: %w", ev.Type, err))
		}
		version, p.idle = o.Metadata.ResourceVersion, 1 // bookmarks count too
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return version, p.api.failed(fmt.Errorf("it stopped sending events: %w", err))
	}
	return version, nil
}
