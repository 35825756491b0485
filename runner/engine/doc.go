// Package engine asks a container engine about its containers, over the HTTP API on its unix socket that Docker
// documents and Podman also implements ("podman system service"). It reads, and it ends the containers of a run. An
// engine's answers are its claims. [Relay] (for Docker) and [StandIn] (for Podman) put the containers that a command
// makes into its run. [Pods] are the pods of a node, as Kubernetes' API server reports them.
package engine
