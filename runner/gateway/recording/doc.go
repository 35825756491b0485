// Package recording records what a run's agents did: its turns, the decisions about its calls, its call events, and
// the documents session.json and policy.json.
//
// A client opens a [Run], and a client ends it. If all clients have been gone for the grace time, the run is
// incomplete. A call that enters an open run with [Run.Enter] is part of it, and [Run.End] waits for it. Only the
// recorder numbers the lines. After the first line that could not be written, a run is broken: [Run.Failure] says
// why, and nothing more counts as recorded.
//
// A turn is limited in size: repeated texts are stored once as blobs, long texts are cut, and the turn says what is
// missing. [Run.Read] reads the turns from their file while they are written, so a slow reader costs no memory and
// misses nothing.
package recording
