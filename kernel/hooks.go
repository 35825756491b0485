package kernel

// HookID indexes the hooks of this package: [Report].Hooks and [Probe] list them in this order.
type HookID uint16
