-- Changes or returns the free permits of a semaphore. A repeated request is executed once.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the stored reply to this request, if it was executed before; left out for 'get', whose reply is not stored
-- KEYS[3]  the owners of taken permits
-- ARGV[1]  the operation: 'set', 'add', 'add_if_there', 'drain', 'get', 'delete' or 'forget'
-- ARGV[2]  the amount: the permits to set or to add
-- ARGV[3]  the channel of the semaphore
-- ARGV[4]  the lease of KEYS[2], ms; longer than the server accepts a repetition of the request
-- ARGV[5]  the life of a new semaphore, ms, 0 for no expiry
-- ARGV[6]  for 'forget': the visitor that no longer owns its permits. They stay taken without a lease
-- ARGV[7]  the server time after which the request is refused, ms since 1970
-- ARGV[8]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, answer}  done. answer is for 'add' the free permits; for 'get' and 'drain' the free permits and the
--         permits with expired leases; for other operations 1 if something was changed, else 0
--         {3, now}          too late, nothing was done
--         {4, now}          the free permits would leave the range of ±2147483647; nothing was done
--
-- Keeps: the reply is stored before the count changes, so a server at maxmemory refuses both. Permits of a deleted
-- semaphore are not returned to the next semaphore of this name.

-- include keep_taken.lua

-- include in_time.lua
local op = ARGV[1]
-- include free_permits.lua
local taken, over, back = KEYS[#KEYS], {}, 0
if free and (op == 'get' or op == 'drain') then
    local most = op == 'get' and -1 or 5000
    over = call('ZRANGEBYSCORE', taken, '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
    for _, owner in ipairs(over) do
        back = back + (string.match(owner, '^(%d+)%*') or 0)
    end
end
if op == 'get' then
    keep_taken(taken, key, pcall('PTTL', key))
    return {number, {1, now, (free or 0) + back}}
end
-- include answered_before.lua
local answer, does = free and 1 or 0, free
if op == 'forget' then
    does = free and call('ZSCORE', taken, ARGV[6])
    answer = does and 1 or 0
elseif op == 'set' then
    answer, does = 1 - answer, not free
elseif op == 'drain' then
    answer = (free or 0) + back
elseif op == 'add' or op == 'add_if_there' and free then
    local sum = (free or 0) + ARGV[2]
    answer, does = op == 'add' and sum or 1, true
    if sum > 2147483647 and ARGV[2] + 0 > 0 or sum < -2147483647 then
        answer, does = 'range', false
    end
end
-- include answer_once.lua
local done, message = 0
if not free then
    done = forget_taken(taken)
end
if type(done) == 'table' then
    message = nil
elseif op == 'set' and ARGV[5] == '0' then
    done, message = pcall('SET', key, ARGV[2]), ARGV[2]
elseif op == 'set' then
    done, message = pcall('SET', key, ARGV[2], 'PX', ARGV[5]), ARGV[2]
elseif op == 'delete' then
    done = forget_taken(taken)
    done = type(done) == 'table' and done or pcall('DEL', key)
elseif op == 'forget' then
    done = pcall('ZREM', taken, ARGV[6])
elseif op == 'drain' then
    -- Checks the right to ZREM.
    done = #over > 0 and pcall('ZREM', taken, '') or nil
    if type(done) ~= 'table' then
        done = pcall('DECRBY', key, free)
    end
    if type(done) ~= 'table' and #over > 0 then
        call('ZREM', taken, unpack(over))
    end
else
    done = pcall('INCRBY', key, ARGV[2])
    message = done
end
-- include answer_change.lua
