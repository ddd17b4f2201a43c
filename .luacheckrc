-- Luacheck looks at the scripts as Redis gets them, joined from their files ("make lint").
-- A file here is named after the package and the script.

-- Redis runs Lua 5.1 in a sandbox: these are the parts of it that a script may rely on.
stds.sandbox = {
  read_globals = {
    "redis", "KEYS", "ARGV", "cjson", "cmsgpack", "struct", "bit", "unpack",
    "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type",
    "math", "string", "table",
  },
}
std = "sandbox"
max_line_length = 100
codes = true

-- The shared files provide more than these scripts use.
files["redislock.renew.lua"].ignore = {"211", "221"}
-- A claim is what admit.lua does; the KEYS and ARGV that it provides are for other scripts.
files["redisfence.claim.lua"].ignore = {"211/KEYS", "211/ARGV"}

-- "if closed then" is empty in serve.lua because the answer is closed already.
files["redlock.hold.lua"].ignore = {"542"}
