"""Lua scripts for Redis; each works atomically on one key."""

# Heartbeat of a node. Returns {1 when the node was known, run id of this server, its Unix microseconds, every live node
# …}. KEYS: the set of nodes. ARGV: incarnation, milliseconds of silence after which a node counts as dead.
BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
local all = redis.call('ZRANGE', KEYS[1], 0, -1)
table.insert(all, 1, known and '1' or '0')
table.insert(all, 2, string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '')
table.insert(all, 3, time[1] .. string.format('%06d', time[2]))
return all
"""

# Claim for a device that attaches. KEYS: the claims of its number. ARGV: partition, the claim's five fields, seconds
# that it lasts, 1 to repeat a claim, incarnations known to be dead, which do not count. Returns {'held', field, claim}
# when another claim is in force, else {'ok', field, claim, …} with the claims that it ended. An unreadable claim, by
# the same rule as `frames.decode_claim`, counts as absent: it is removed and is among those returned. So is a key that
# is not a hash.
CLAIM = """
local partition, layout, partitions, epoch = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local token, node, again = ARGV[5], ARGV[6], ARGV[8] == '1'
local dead = {}
for i = 9, #ARGV do dead[ARGV[i]] = true end
local answer = {'ok'}
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', KEYS[1])
    table.insert(answer, '')
    table.insert(answer, 'a ' .. kind)
end
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
    local l, p, e, t, n = string.match(held[i + 1], '^(%d+) (%d+) (%d+) (%d+) ([%w%._%-]+)$')
    local part = string.match(held[i], '^%d+$')
    local readable = l and part and #held[i] <= 9 and #held[i + 1] <= 200 and tonumber(part) < tonumber(p)
    local same = held[i] == partition and tonumber(l) == layout
    if readable and not dead[n] then
        if tonumber(l) > layout or (same and epoch > 0 and tonumber(e) > epoch) or (same and again and n ~= node) then
            return {'held', held[i], held[i + 1]}
        end
    end
    if not readable or tonumber(l) < layout or tonumber(p) ~= partitions or held[i] == partition or dead[n] then
        if not (n == node and t == token) then
            table.insert(answer, held[i])
            table.insert(answer, held[i + 1])
        end
        redis.call('HDEL', KEYS[1], held[i])
    end
end
redis.call('HSET', KEYS[1], partition, table.concat({ARGV[2], ARGV[3], ARGV[4], token, node}, ' '))
redis.call('EXPIRE', KEYS[1], ARGV[7])
return answer
"""

# Renewal of a claim. Returns 1 if it is still in force, else 0. KEYS: the claims of its number. ARGV: partition, claim,
# seconds that it lasts.
RENEW = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' or redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[3])
"""

# Release for a device that detaches: removes its claim if it is still this one. KEYS: the claims of its number. ARGV:
# partition, claim.
RELEASE = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then return redis.call('HDEL', KEYS[1], ARGV[1]) end
return 0
"""
