// Package script runs the stories: each file below testdata is a session at a terminal, told with what rung must answer.
//
// testdata/each holds what is true on every rung: those run once per rung and kind of user, with `run` standing for
// `rung run -q --rung R` and the flags that R needs. testdata/story holds the rest.
//
// The commands that stories have beyond those of testscript (see commands_test.go):
//
//	run ARG…                 rung run on the rung of this turn
//	asuser CMD…              CMD as an ordinary user, with state and runtime directories of his own; undelegated, delegated
//	                         and single are other users, see users_test.go
//	delegate                 give the delegated user a control group for this story
//	exits CODE CMD…          CMD (which may be run or asuser) must exit with CODE
//	start NAME CMD…          CMD in the background; NAME.out and NAME.err grow as it writes
//	finish NAME CODE         wait for it, bounded; it must exit with CODE
//	signal SIGNAL NAME       INT, TERM, HUP, KILL, STOP or CONT
//	await FILE REGEXP        until the file matches, bounded
//	alive N                  until exactly N sandboxes of this story are alive, bounded
//	gone                     until none is, within a second
//	apart N                  N sandboxes of this story are alive and share no user id
//	killholder               kill -9 every holder of this story
//	json FILE PATH EXPECTED  the value there; ~REGEXP matches, !VALUE differs, >N is greater, ? exists
//	leftovers                fails if anything of this story's sandboxes is left on the host
package script
