// Package recording keeps what a run's agents did: its turns, the decisions about
// its calls, its call events, and the documents session.json and policy.json.
//
// A [Run] is opened by a client and ended by one, or is incomplete when all of
// them have left for the grace time. While it is open, what is entered with
// [Run.Enter] is part of it, and [Run.End] waits for that. The recorder alone
// numbers the lines. After the first line that could not be written a run is
// broken: [Run.Failure] tells why, and nothing more may be taken as recorded.
//
// A turn is bounded: texts that repeat are stored once as blobs, long ones are
// cut, and the turn says what is missing. [Run.Read] follows the turns from
// their file while they are written, so a slow reader costs no memory and misses
// nothing.
package recording
