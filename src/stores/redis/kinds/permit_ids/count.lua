-- Changes or returns the permits of a semaphore, or one taken permit by its id. A repeated request is executed once.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the stored reply to this request, if it was executed before; left out for 'get', 'taken' and 'lease', whose
--          replies are not stored
-- KEYS[3]  the ids of taken permits, each with its expiry, ms since 1970
-- ARGV[1]  the operation: 'get', 'taken', 'lease', 'set', 'replace', 'add', 'delete', 'give_back' or 'set_lease'
-- ARGV[2]  the amount: the permits to set or to add, or the lease to set, ms
-- ARGV[3]  the channel of the semaphore
-- ARGV[4]  the lease of KEYS[2], ms; longer than the server accepts a repetition of the request
-- ARGV[5]  the life of a new semaphore, ms, 0 for no expiry
-- ARGV[6]  the visitor: the id of a permit, 32 hexadecimal digits
-- ARGV[7]  the server time after which the request is refused, ms since 1970
-- ARGV[8]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, answer}  done. answer is for 'add' the free permits; for 'get' the free and expired permits; for
--         'taken' the unexpired taken permits; for 'lease' the rest of the permit's lease, ms, at most the semaphore's
--         TTL, 0 if the permit is not taken; for other operations 1 if done, 0 if not
--         {3, now}          too late, nothing was done
--         {4, now}          the free permits would leave the range of ±2147483647; nothing was done
--
-- Keeps: the reply is stored before anything changes. A server at maxmemory executes only queries, and 'give_back' and
-- 'set_lease' for a taken permit. Permits of a deleted semaphore are not returned to the next semaphore of this name.

-- include id_of.lua
-- include keep_taken.lua

-- include in_time.lua
local op = ARGV[1]
-- include free_permits.lua
local taken, at = KEYS[#KEYS], string.format('%.0f', now)
local id = string.gsub(ARGV[6], string.rep('%x', 32), id_of)
local function rest()
    local ends = free and call('ZSCORE', taken, id)
    return ends and ends + 0 > now and ends - now or nil
end
if op == 'get' or op == 'taken' or op == 'lease' then
    keep_taken(taken, key, pcall('PTTL', key))
end
if op == 'get' then
    return {number, {1, now, free and free + call('ZCOUNT', taken, '-inf', at) or 0}}
elseif op == 'taken' then
    return {number, {1, now, free and call('ZCOUNT', taken, '(' .. at, '+inf') or 0}}
elseif op == 'lease' then
    local left, life = rest() or 0, call('PTTL', key)
    return {number, {1, now, life >= 0 and math.min(left, math.max(life, 1)) or left}}
end
-- include answered_before.lua
local answer, does, by = free and 1 or 0, free, ARGV[2]
if op == 'give_back' or op == 'set_lease' then
    does = rest()
    answer = does and 1 or 0
    if does then
        -- Checks the right to ZREM. After ZREM, a server at maxmemory accepts the following writes of the script.
        call('ZREM', taken, '')
    end
elseif op == 'set' then
    answer, does = 1 - answer, not free
elseif op == 'replace' then
    answer, does = 1, true
    -- Expired permits in the set are returned to the semaphore later, so they are subtracted as well.
    by = free and string.format('%.0f', by - free - call('ZCOUNT', taken, '-inf', '+inf'))
elseif op == 'add' then
    answer, does = (free or 0) + by, true
    if answer > 2147483647 and by + 0 > 0 or answer < -2147483647 then
        answer, does = 'range', false
    end
end
-- include answer_once.lua
local done, message = 0, nil
if not free then
    done = forget_taken(taken)
end
if type(done) == 'table' then
    message = nil
elseif op == 'set_lease' then
    done = pcall('ZADD', taken, string.format('%.0f', math.min(now + by, 922337203685477)), id)
elseif op == 'delete' then
    done = forget_taken(taken)
    done = type(done) == 'table' and done or pcall('DEL', key)
elseif op ~= 'add' and not free then
    if ARGV[5] == '0' then
        done = pcall('SET', key, ARGV[2])
    else
        done = pcall('SET', key, ARGV[2], 'PX', ARGV[5])
    end
    message = ARGV[2]
else
    done = pcall('INCRBY', key, op == 'give_back' and 1 or by)
    message = done
    if op == 'give_back' and type(done) ~= 'table' then
        call('ZREM', taken, id)
    end
end
-- include answer_change.lua
