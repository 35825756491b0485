// Package tape answers an agent's requests to models with the answers of an earlier run.
//
// A [Cassette] is the model layer of a bundle. A request matches a recorded one by what a program decides: route, path,
// model, stream, tools, and the conversation's shape (see shapeOf), in which ids are numbered by
// their first appearance.
// What it says in words may differ: in two equal runs of an agent, session ids, times and process ids do. Such
// differences are the drift of the request. Each answer is used once. There is no request of its
// own: what does not match
// is a [Miss].
package tape
