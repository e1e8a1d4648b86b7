// Package jsonline is the JSON that runners exchange with agents outside of the gateway: programs and servers. The request is one [Document]. The
// answer is a sequence of lines, each a JSON object ([Parse]):
//
//	{"delta": "new text"}
//	{"usage": {"inputTokens": 12, "outputTokens": 34, "model": "m"}}
//	{"error": "One sentence for the person.", "reason": "rate_limit"}
//	{"final": "the whole text"}
//	{"attach": {"path": "chart.png", "name": "Sales.png", "mimeType": "image/png"}}
//	{"done": true}
//
// final adds what the deltas do not contain yet. final and done mark an answer as complete, for transports that do not show this themselves. One
// object may have several of the members; unknown members are ignored. [Answer] applies lines to an answer. The runner decides what to do with any
// other line.
//
// Nothing here reads, waits or starts a goroutine.
package jsonline
