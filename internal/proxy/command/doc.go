// Package command says what each command is: how it may travel to Redis, whether it may change data or wait for others,
// and what Redis says of the lock commands if it is asked for its commands. It has no state and does no I/O; tables are
// immutable.
package command
