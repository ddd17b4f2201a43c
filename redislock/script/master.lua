-- Refuses to read at a replica, which may lag behind: then the client leaves it.

if string.find(redis.call('INFO', 'replication'), 'role:slave', 1, true) then
  return redis.error_reply('READONLY the server is a replica, which may lack locks')
end
