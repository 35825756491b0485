// Package wire reads what agents and model providers send each other: requests and answers of Anthropic's messages,
// OpenAI's responses and chat completions, and Gemini's generateContent, as JSON or as a stream of events.
//
// Its functions have no side effects, and everything they read is hostile. They use the structure of a message and
// never search its text. Missing values are nil or empty: a count that nobody gave is not 0. Of a stream that breaks
// off, they return what had come.
//
// Answers are read as leniently as the providers' clients read them: by what the body is, whatever its content type
// says, and each member for itself. A member of another type than the API says is in [Answer.Odd] and read as absent.
//
// Providers add kinds of events and items at any time. Kinds that this package does not know are counted in
// [Answer.Unknown], so that a reader knows whether an answer was understood completely.
package wire
