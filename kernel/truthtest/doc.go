// Package truthtest compares what a run of assay-run recorded with what
// happened: as strace saw the same workload, and as programs written for one
// nasty case each know it of themselves. It has no code but its tests, which
// drive the built program and read its bundles.
//
// A fact is one thing that happened, in words that both sides can say: who, what
// kind, by which path, with which flags and result. Recall is the share of
// strace's facts that are in the layer, precision the share of the layer's facts
// that strace has as well.
package truthtest
