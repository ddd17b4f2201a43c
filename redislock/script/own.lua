-- Finds out which keys have a hold of snib as their value. It writes nothing.
--
-- KEYS    the keys, which were strings a moment ago
-- ARGV    how the values begin
-- Answer  one text with a character for each key: 1 if its value begins so, otherwise 0

local answers = {}
for i = 1, #KEYS do
  answers[i] = '0'
  for j = 1, #ARGV do
    local head = redis.pcall('GETRANGE', KEYS[i], 0, #ARGV[j] - 1)
    if head == ARGV[j] then answers[i] = '1' end
    if type(head) == 'table' and not string.find(head.err, 'WRONGTYPE', 1, true) then
      return head
    end
  end
end
return {table.concat(answers)}
