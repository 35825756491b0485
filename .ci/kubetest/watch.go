package kubetest

func event(kind string, object any) map[string]any {
	return map[string]any{"type": kind, "object": object}
}
