-- Acquires a side of a read-write lock, or re-enters it.
--
-- KEYS[1]  the lock: a hash of its mode, and of the visitors with their hold counts
-- KEYS[2]  the TTL key of the visitor; a writer has one if its thread also reads
-- KEYS[3]  the queue entries of the waiters
-- KEYS[4]  the TTL key of ARGV[5]; equal to KEYS[2] if ARGV[5] is ''
-- ARGV[1]  the visitor, which ends in ':write' for a writer
-- ARGV[2]  the lease, ms
-- ARGV[3]  the expected count; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the writer inside whose hold the same thread acquires the read side, '' for none
-- ARGV[6]  the requested position: 'join' at the end of the queue, 'rejoin' at the former position, 'never' for none;
--          'barge' for none, and the waiters in the queue are ignored
-- ARGV[7]  the server time after which the request is refused, ms since 1970
-- ARGV[8]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/acquire.lua: a number if granted, else {0, now, ttl, holder}, {2, now, holder}, {3, now} or
--         {4, now, count}. If a waiter precedes the visitor, ttl is 1000, and holder is this waiter.
--
-- Keeps: each hold has an expiry. A repeated first request changes no count and shortens no lease. A first request that
-- fails with an error leaves no hold.

-- include sides.lua
-- include turns.lua

-- include in_time.lua
local own, notes = KEYS[2], KEYS[3]
local visitor, lease, known, wanted, inside, wish = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local writes = is_writer(visitor)
local granted = number * 4194304 + math.min(expiry - now, 4194303)

-- Returns the waiter that has to acquire the lock before the visitor; false if there is none.
local function who_goes_before(mode)
    local first = wish ~= 'barge' and mode ~= 'write' and first_before(notes, visitor, now, not writes)
    local came = first and mode and pcall('ZSCORE', notes, first)
    if type(came) == 'string' and now - came > 3000 then
        -- Redisson's readers ignore waiting writers, so a writer may wait forever. If the writer has waited for 3 s
        -- and Redisson's readers hold the lock, the visitor does not wait for the writer.
        for _, field in ipairs(call('HKEYS', key)) do
            first = first and not string.find(field, '^[^:]+:%d+$') and first
        end
    end
    return first
end

local function begin(mode)
    local lasts = call('PTTL', key)
    if mode == 'write' and not is_over(key, KEYS[4], inside) and call('EXISTS', KEYS[4]) == 0 then
        -- The hash now expires with the longer of the two holds, so the writer's hold needs a TTL key. An expired hold gets
        -- no TTL key, because the key would revive the hold.
        call('SET', KEYS[4], 1, 'PX', math.max(lasts, 1))
    end
    call('HSET', key, 'mode', mode or writes and 'write' or 'read', visitor, wanted)
    local set = not writes and pcall('SET', own, 1, 'PX', lease)
    if not (type(set) == 'table' and set.err) then
        set = lasts < lease + 0 and pcall('PEXPIRE', key, lease)
    end
    if type(set) == 'table' and set.err then
        pcall('DEL', own)
        -- If the user lacks the right to HDEL, a lock that was free before is deleted as a whole.
        if type(pcall('HDEL', key, visitor, mode and visitor or 'mode')) == 'table' and not mode then
            pcall('DEL', key)
        end
        return set
    elseif wish == 'rejoin' then
        pcall('ZREM', notes, visitor)
    end
    return granted
end

if known ~= '0' then
    -- include side_count.lua
    prolong(key, lease)
    call('HSET', key, visitor, wanted)
else
    local mode, flaw = mode_of(key)
    if flaw then
        return flaw
    elseif not mode or call('HEXISTS', key, visitor) == 0 then
        local may = not mode or not writes and (mode == 'read' or inside ~= '' and call('HEXISTS', key, inside) == 1)
        local before = may and who_goes_before(mode)
        if may and not before then
            return begin(mode)
        elseif wish == 'join' or wish == 'rejoin' then
            note_wait(notes, visitor, now)
        end
        return {number, {0, now, before and 1000 or call('PTTL', key), before and string.sub(before, 1, 128) or holder_of(key)}}
    end
end
-- The following also runs if the request that began the hold is repeated.
if not writes and call('EXISTS', own) == 0 then
    call('SET', own, 1, 'PX', lease)
end
prolong(own, lease)
prolong(key, lease)
return granted
