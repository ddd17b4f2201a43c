package redlock

// The codes of the requests to a node. Those about a lock are explained in script/serve.lua, the
// others in script/admin.lua.
const (
	codeTake         = 'a'
	codeRaise        = 'r'
	codeExtend       = 'e'
	codeFree         = 'f'
	codeSetHolder    = 'h'
	codeBreak        = 'b'
	codeFreeForeign  = 'x'
	codeRemoveWaiter = 'd'

	codeShowLock  = 'l'
	codeShowNode  = 's'
	codeMark      = 'm'
	codeSaveTimes = 'w'
	codeCounters  = 'c'
	codeAdmit     = 'j'
	codeInit      = 'i'
)
