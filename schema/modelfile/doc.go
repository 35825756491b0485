// Package modelfile says how a run reaches the providers of models, as plain data: through which routes, with whose
// keys, within which budget and at which prices. Package runner/model is the endpoint that does it.
package modelfile
