package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
)

// Kubernetes is the name under which Pods are chosen and recorded. Find does not know it.
const Kubernetes = "kubernetes"

// Bounds of what Pods remembers.
const (
	maxPods    = 20_000 // with those that have ended
	maxDeleted = 512
	maxImages  = 2 << 10 // bytes of a bundle's label
)

// Pods are the pods of one node, as the API server of Kubernetes reports them. To a Watcher,
// each pod is a Container: its ID is the pod's uid, and New means that the pod has not ended.
// The methods are safe for concurrent use.
type Pods struct {
	api       apiServer
	namespace string // empty for all
	node      string
	cgroups   kubepods

	// Only Events uses these. It has one call at a time.
	listed bool
	idle   int // requests since the last that reported anything new

	mu      sync.Mutex
	pods    map[string]*pod // by uid
	deleted []string        // uids in pods, the oldest first
}

// pod is what Pods knows about a pod.
type pod struct {
	Container
	ran     bool          // a container of it has run
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
	return Container{ID: o.Metadata.UID, Name: o.Metadata.Namespace + "/" + o.Metadata.Name, Image: image[:min(len(image), maxImages)], New: !o.ended()}
}

// A name of the API: of a namespace or a node. A uid becomes part of a path.
var (
	nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`) })
	uidForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,62}[A-Za-z0-9])?$`) })
)

// InPod returns the pods of the node that this process's pod runs on, in a namespace or, if
// that is empty, in all. It uses the pod's service account, and does not connect.
func InPod(namespace string) (*Pods, error) {
	host, node := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("NODE_NAME")
	switch {
	case host == "":
		return nil, &KubernetesError{errors.New("KUBERNETES_SERVICE_HOST is not set"), "run assay-run in a pod, as docs/kubernetes/daemonset.yaml does"}
	case !nameForm().MatchString(node):
		return nil, &KubernetesError{fmt.Errorf("NODE_NAME is %q, and not the name of a node", node), "set it in the pod's env, with fieldRef: {fieldPath: spec.nodeName}"}
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
		return regexp.MustCompile(`^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
	})
	labelValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`) })
)

// Watch is as Engine.Watch, except that it also joins, late, the pods that ran before.
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
		"container_engine": Kubernetes, "pod_uid": c.ID, "pod_namespace": namespace, "pod_name": name, "pod_containers": c.Image, "node_name": p.node,
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

// note remembers what the API server says about a pod, and calls fn with what that means.
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

// forget drops the oldest of the pods that were deleted, if there are many. p.mu is locked.
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

// vanished notes that pods are no longer in the API server's list.
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
