-- Renews many holds of read-write locks at once, of readers and of writers.
--
-- KEYS[2i-1]            a lock
-- KEYS[2i]              the TTL key of the visitor
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i-1] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which precedes the reply: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  renewed, except for each listed i-th hold: what is 0 if the hold expired or the lock is
--           free, else the holder of the lock
--
-- Keeps: only holds with the visitor's own field are extended. No lease is shortened.

-- include sides.lua

-- include renewals.lua
for i = 1, #KEYS / 2 do
    local key, own, visitor, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], ARGV[2 * i]
    local has, what = pcall('HEXISTS', key, visitor), nil
    if type(has) == 'table' then
        if not string.find(has.err, 'WRONGTYPE', 1, true) then
            return has
        end
        what = 'a key of another type'
    elseif has == 0 then
        what = holder_of(key)
    elseif is_over(key, own, visitor) then
        what = ''
    else
        prolong(own, lease)
        prolong(key, lease)
    end
    if what then
        note(i, what == '' and 0 or what)
    end
end
return {number, result}
