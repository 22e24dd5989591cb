-- Renews many holds at once.
--
-- KEYS[i]               a lock
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[i] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which precedes the reply: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  renewed, except for each listed KEYS[i]: what is 0 if the lock is free, else its holder
--
-- Keeps: only a key with the visitor's own field gets a new TTL.

-- include holder_of.lua

-- include renewals.lua
for i = 1, #KEYS do
    local key = KEYS[i]
    local has = pcall('HEXISTS', key, ARGV[2 * i - 1])
    if has == 1 then
        call('PEXPIRE', key, ARGV[2 * i])
    else
        local what = 'a key of another type'
        if has == 0 then
            local holder = holder_of(key)
            what = holder == '' and 0 or holder or what
        elseif not string.find(has.err, 'WRONGTYPE', 1, true) then
            return has
        end
        note(i, what)
    end
end
return {number, result}
