-- Takes a read-write lock to read or to write, or enters it once more.
--
-- KEYS[1]  the lock: a hash of its mode, and of the visitors with their hold counts
-- KEYS[2]  the time key of the visitor; a writer has it if its thread reads inside
-- KEYS[3]  the notes on those who wait
-- KEYS[4]  the time key of the writer inside whose hold the visitor reads
-- ARGV[1]  the visitor, which ends in ':write' if it is to write
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the writer inside whose hold it reads, '' for none
-- ARGV[6]  the place wanted: 'join' for one behind all others, 'rejoin' if the visitor has one, 'never' for none, 'barge' for none
--          and before all others
-- ARGV[7]  the server time after which the request is refused, ms since 1970
-- ARGV[8]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: a number granted, {0, now, ttl, holder} refused, {2, now, holder} gone, {3, now} too late,
--         {4, now, count} another count
--
-- Keeps: no hold is there without an end. A copy of the first request changes no count, and shortens nothing. What a full
-- server refuses comes first, and what fails behind it is undone.

-- include sides.lua
-- include turns.lua

-- include in_time.lua
local own, notes = KEYS[2], KEYS[3]
local visitor, lease, known, inside, wish, writes = ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[6], is_writer(ARGV[1])
local granted = number * 4194304 + math.min(expiry - now, 4194303)

-- Who is to go before the visitor on a lock that it could have; false if nobody is.
local function who_goes_before(mode)
    local first = wish ~= 'barge' and mode ~= 'write' and first_before(notes, visitor, now, not writes)
    local came = first and mode and pcall('ZSCORE', notes, first)
    if type(came) == 'string' and now - came > 3000 then
        -- Where readers of Redisson come in whoever waits, to wait on for the writer that they keep out is of no use.
        for _, field in ipairs(call('HKEYS', key)) do
            first = first and not string.find(field, '^[^:]+:%d+$') and first
        end
    end
    return first
end

-- Begins the hold, or leaves nothing and returns an error.
local function begin(mode)
    local lasts = call('PTTL', key)
    if mode == 'write' and not is_over(key, KEYS[4], inside) and call('EXISTS', KEYS[4]) == 0 then
        -- From now on the hash lasts as long as both, and only time keys tell how long each of them does. That of a writer that is
        -- over does not come back.
        call('SET', KEYS[4], 1, 'PX', math.max(lasts, 1))
    end
    call('HSET', key, 'mode', mode or writes and 'write' or 'read', visitor, ARGV[4])
    local set = not writes and pcall('SET', own, 1, 'PX', lease)
    if not (type(set) == 'table' and set.err) then
        set = lasts < lease + 0 and pcall('PEXPIRE', key, lease)
    end
    if type(set) == 'table' and set.err then
        pcall('DEL', own)
        -- A user without the right to the one may have the right to the other.
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
    call('HSET', key, visitor, ARGV[4])
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
-- Also a copy of the request that began the hold.
if not writes and call('EXISTS', own) == 0 then
    call('SET', own, 1, 'PX', lease)
end
prolong(own, lease)
prolong(key, lease)
return granted
