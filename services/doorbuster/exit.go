package main

import "errors"

// Exit statuses, by one rule for every command.
const (
	exitDone   = 0 // done, and the answer, where there is one, is yes
	exitNo     = 1 // the answer is no: see no
	exitFailed = 2 // it could not be done: an error, a refusal by the API, wrong usage or configuration
)

// exitHelp tells the rule in --help.
const exitHelp = "Exit status: 0 when it is done; 1 when the answer is no, that is, verify, demo or load found a promise broken, " +
	"or quota deduct or sale adjust could take nothing; 2 when it could not be done or asked."

// no ends a command that was done and whose answer is no. It is empty when the
// output says why already.
type no string

func (n no) Error() string { return string(n) }

// exitStatus is the exit status of a command that ended with err.
func exitStatus(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[no](err); ok {
		return exitNo
	}
	return exitFailed
}
