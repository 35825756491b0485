// Package tape answers an agent's requests to models with the answers of an earlier run.
//
// A [Cassette] is the model layer of a bundle. A request matches a recorded one by what programs decide: route, path,
// model, stream, tools, and the shape of the conversation (see shapeOf), in which ids are numbered by first
// appearance. Its texts may differ, since session ids, times and process ids differ between equal runs of an agent.
// These differences are the drift of the request. Each answer is used once. There is no fallback to the provider: a
// request that matches none is a [Miss].
package tape
