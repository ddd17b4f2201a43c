-- Serves the requests of a batch about holding locks, in order.
--
-- KEYS      see node.lua
-- ARGV      see node.lua. The requests are, by code:
--             a NONCE TTL HINT JSON TOKENS ID     take the lock if it is free, with so many
--                                                 tokens; ID is empty unless the attempt waits
--             r NONCE TO                          raise the counter of a round to TO
--             e NONCE TTL TOKEN JSON              extend a lease, or take its lock again if nobody
--                                                 else has had it since. If TOKEN is 0, the lock is
--                                                 not taken again; if TTL is 0 too, nothing changes
--             f NONCE KEEP                        free the lock, or keep it closed for KEEP ms
--             h NONCE JSON                        show other details of the holder
--             b NONCE KEEP                        the same by force: hint that to the holder
--             x VALUE KEEP                        the same with the key of another library
--             d ID                                remove a waiter
--           A nonce ends with a space. JSON is an object without its opening brace
-- Provides  answers
-- Answer    none: commit.lua returns answers, one text for each request:
--             g COUNTER       granted
--             h LEFT VALUE    held; LEFT is -1 if the key does not expire
--             o               done
--             n               the key does not have the nonce, or another has had the lock since
--             u, m            see closed in node.lua
--             k TYPE          the key is not a string
--             x TEXT          an error of Redis

local answers, arg = {}, 4 + n
for i = 1, n do
  local lock, field, code, nonce = KEYS[1 + i], ARGV[3 + i], ARGV[arg], ARGV[arg + 1]
  local value, c = held[lock], counter[field]
  local answer = string.find('aer', code, 1, true) and closed()
  local mine = value and sub(value, 1, #nonce) == nonce
  if code == 'x' then mine = value == nonce end
  if code == 'f' or code == 'b' or code == 'x' then
    if mine then
      -- The higher counter keeps the lease from taking the lock again.
      if not wrong[field] then counter[field], raised[field] = c + 1, true end
      if ARGV[arg + 2] == '0' then
        held[lock], writes[lock], gone[lock] = false, nil, values[i] and true or nil
        deletes[i] = true
      else
        -- A server whose memory is full executes PEXPIRE, and then all that the script writes.
        if values[i] then redis.pcall('PEXPIRE', lock, ARGV[arg + 2]) end
        write(i, lock, 'kept:' .. value, ARGV[arg + 2])
      end
      freed[#freed + 1] = 'snib.rw:' .. lock
      if code == 'b' then broken[#broken + 1] = nonce end
      answer = 'o'
    else
      answer = closed() or 'n'
    end
    arg = arg + 3
  elseif code == 'a' then
    local ttl, more, waiter = ARGV[arg + 2], tonumber(ARGV[arg + 5]) - 1, ARGV[arg + 6]
    if answer then
      -- the node is closed
    elseif mine then
      extend(lock, ttl)
      answer = 'g ' .. (string.match(value, '^%S+ (%d+)') or '')
    elseif value then
      if waiter ~= '' then addWaiter('snib.rw:' .. lock, waiter, ARGV[arg + 4]) end
      answer = 'h ' .. timeLeft(lock) .. ' ' .. value
    elseif wrong[field] then
      answer = wrong[field]
    else
      local hint = tonumber(ARGV[arg + 3])
      if hint > now + 60000000 then hint = now + 60000000 end
      if hint <= c then hint = c + 1 end
      c = hint + more
      counter[field], raised[field] = c, true
      local token = format('%d', c)
      value = nonce .. token .. since .. ARGV[arg + 4]
      write(i, lock, value, ttl)
      if waiter ~= '' then redis.pcall('HDEL', 'snib.rw:' .. lock, waiter) end
      answer = 'g ' .. token
    end
    arg = arg + 7
  elseif code == 'e' then
    if answer then
      -- the node is closed
    elseif mine then
      local token = ARGV[arg + 3] .. ' '
      extend(lock, ARGV[arg + 2]) -- even if the write below fails
      -- Whoever looks up the hold finds this token on this node too.
      if token ~= '0 ' and sub(value, #nonce + 1, #nonce + #token) ~= token then
        local before = writes[lock]
        write(i, lock, withToken(value, nonce, ARGV[arg + 3]), timeLeft(lock))
        writes[lock].optional = not before or before.optional
      end
      answer = 'o'
    elseif value or ARGV[arg + 3] == '0' or c > tonumber(ARGV[arg + 3]) then
      answer = 'n'
    elseif wrong[field] then
      answer = wrong[field]
    else
      counter[field], raised[field] = tonumber(ARGV[arg + 3]), true
      write(i, lock, nonce .. ARGV[arg + 3] .. since .. ARGV[arg + 4], ARGV[arg + 2])
      answer = 'o'
    end
    arg = arg + 5
  elseif code == 'r' then
    local to = tonumber(ARGV[arg + 2])
    if answer then
      -- the node is closed
    elseif wrong[field] or to > most then
      answer = wrong[field]
        or 'x the token ' .. ARGV[arg + 2] .. ' is more than a day ahead of the clock'
    elseif mine and c <= to then
      counter[field], raised[field] = to, true
      write(i, lock, withToken(value, nonce, ARGV[arg + 2]), timeLeft(lock))
      answer = 'o'
    else
      answer = 'n'
    end
    arg = arg + 3
  elseif code == 'h' then
    if mine then
      local token, granted = string.match(value, '^(%d+) {"since":(%d+),', #nonce + 1)
      if token then
        local json = '{"since":' .. granted .. ',' .. ARGV[arg + 2]
        write(i, lock, nonce .. token .. ' ' .. json, timeLeft(lock))
      end
      answer = 'o'
    else
      answer = closed() or 'n'
    end
    arg = arg + 3
  else -- d
    redis.pcall('HDEL', 'snib.rw:' .. lock, nonce)
    answer = 'o'
    arg = arg + 2
  end
  answers[i] = answer
end
