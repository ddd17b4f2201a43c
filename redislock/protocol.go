package redislock

// The words of the protocol with requestScript; script/batch.lua says what each means.

// Codes of commands.
const (
	codeAcquire   = "A"
	codeRelease   = "R"
	codeWithdraw  = "w"
	codeBreak     = "b"
	codeSetHolder = "L"
	codeVerify    = "v"
)

// Answers, or their first words.
const (
	answerGranted   = "g"
	answerQueued    = "q"
	answerNotQueued = "n"
	answerHeld      = "h"
	answerGrace     = "e"
	answerKind      = "k"
	answerDone      = "o"
	answerNoHold    = "l"
)

// Words of hints, see script/hint.lua.
const (
	hintTurn   = "k"
	hintWanted = "w"
	hintBroken = "b"
)

// Modes of holds; that of a semaphore is its number of slots.
const (
	modeExclusive = "x"
	modeShared    = "s"
)
