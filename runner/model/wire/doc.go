// Package wire reads what agents and providers of models send each other: requests and answers of Anthropic's messages,
// OpenAI's responses and chat completions, and Gemini's generateContent, in JSON or as a stream of events.
//
// Its functions are pure, and everything they read is hostile. They take what a message says from its structure, never
// by searching its text. What a message lacks is nil or empty: a count that nobody gave is not 0. A stream that
// breaks off is as good as what came of it.
//
// A provider adds kinds of events and items at any time. Those that this package does not know are counted in
// [Answer.Unknown], so that a reader can tell an answer that was understood from one that was not.
package wire
