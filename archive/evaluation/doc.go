// Package evaluation decides from a bundle what an agent under evaluation did against the rules of its
// evaluation file: whether it read what was hidden from it, wrote its own verdict, or prepared the grader.
//
// A rule fails if the bundle shows that it was broken. It is unknown if something happened that may
// have broken it, or if the run used something that the recorder cannot see. Otherwise it passes.
// A rule whose key is not in the evaluation file is not judged.
//
// Verdicts come from events, arguments, and names of files and hosts, never from the meaning of a text.
package evaluation
