// Package errands brings the commands of one session to the servers of a cluster, and the replies back, with the
// refusals that a cluster gives.
//
// An errand is a command on its way. Errands for different servers are on their way at the same time, and their replies
// keep their slots. Only a command that has certainly not run is sent again: a server refused it in Redis's own words,
// or it has not been written. It goes to a server of the view, or nowhere. A script may answer with any words after it
// has run. So the server is asked for the script's keys (EXISTS): if it does not refuse that, the reply is the script's
// own.
//
// # Order
//
// The commands of a key take effect in the order sent. The session sends them to one server, the owner of the slot in
// its view, on one connection, and takes the next view when nothing is on its way. A server that has lost a key refuses
// each of its commands from then on. So there is nothing to do before the first refusal. From then on the key has a
// queue, in the order of the commands:
//
//   - Further commands of the key join its end. Those that have been sent to the server are refused there as well, and
//     join it at their place.
//   - The first is sent again when the server has answered everything that was on its way there at the refusal. So no
//     command of the key is on its way.
//   - When it is carried out, the others follow it, one behind the other, on the same connection, and the queue ends.
//
// A server may refuse the first command, and carry out the next one that is on its way already: its data has just been
// loaded, its slot has come back. Then the first is not sent again, and its refusal is the reply. If a slot leaves a
// server and comes back, it does so when no command from before is on its way: a move takes longer than that.
//
// Keys are told apart by a hash, so an errand keeps no copy of its key. Commands of several keys are sent alone
// (package session): while a slot moves, some of its keys are at one server and some at the other.
//
// # Servers
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the
// command goes to the one that the refusal names.
//
// The package does no I/O and has no lock. Errands belong to one session, which guards them and is known as a Session.
package errands
