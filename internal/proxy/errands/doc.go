// Package errands brings the commands of one session to the servers of a cluster, and the replies back, with the refusals that a cluster gives.
//
// An errand is a command on its way. If a server refuses it because another one serves its slot, or because it cannot be carried out yet, the
// errand is parked. When nothing else is on its way, the parked errands are sent again, one after the other, in the order of the commands. Their
// replies keep their slots.
//
// Only a command that has certainly not run is sent again: a server refused it in Redis's own words, or it has not been written. It goes to a
// server of the view, or nowhere. A script may answer with any words after it has run. So the server is asked for the script's keys (EXISTS): if it
// does not refuse that for the same reason, the reply is the script's own.
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the command goes to the one that the
// refusal names.
//
// A command is not sent again if one of the same key that was sent behind it has been carried out.
//
// The session routes by one view of the cluster, and by the next one when nothing is on its way. Otherwise a command could overtake one that the
// old owner of its slot refuses.
//
// The package does no I/O and has no lock. Errands belong to one session, which guards them and is known as a Session.
package errands
