-- Serves one request for people, or for the admission of the node.
--
-- KEYS     see node.lua; n is 1
-- ARGV[5]  the code of the request; its arguments follow:
--            l          show a lock
--            s          show the node's state
--            m TEXT     mark the node for this run, unless it is marked; then as s
--            w MARK TIMES
--                       if MARK is still its mark, store the times "NODE:TIME …" of other clocks,
--                       except where there is one already; then as s
--            c          show the counters
--            j RUN MARK FLOOR COUNTERS OPERATOR
--                       admit the node if RUN and MARK are still its run and mark. OPERATOR is 1
--                       if an operator gave FLOOR, and 0 if it is a clock's
--            i          initialise the node if it belongs to no cluster
-- Answer   one text: for l, s, m and c see show.lua; for j and i
--            o          done
--            n          the node is not, or no longer, in the state that the request is for

local code, arg = ARGV[5], 5
if code == 'l' then return {lockState(KEYS[2], 'snib.rw:' .. KEYS[2])} end
if code == 'c' then return {counters()} end
if code == 'm' and (ours or blank) and not admitted and not mark then
  mark = ARGV[arg + 1]
  redis.call('HSET', metaKey, 'mark', run() .. ' ' .. mark)
  redis.call('HDEL', metaKey, 'since')
elseif code == 'w' and (ours or blank) and not admitted and mark == ARGV[arg + 1] then
  local since = redis.call('HGET', metaKey, 'since') or ''
  for node, shown in string.gmatch(ARGV[arg + 2], '(%d+):(%d+)') do
    if not string.find(' ' .. since, ' ' .. node .. ':', 1, true) then
      since = since .. node .. ':' .. shown .. ' '
    end
  end
  redis.call('HSET', metaKey, 'since', since)
elseif code == 'j' then
  if not (ours or blank) or admitted
    or ARGV[arg + 1] ~= run() or ARGV[arg + 2] ~= mark then return {'n'} end
  raiseAll(tonumber(ARGV[arg + 3]), ARGV[arg + 4], ARGV[arg + 5] == '1')
  return {admit()}
elseif code == 'i' then
  return {blank and admit() or 'n'}
end
return {nodeState()}
