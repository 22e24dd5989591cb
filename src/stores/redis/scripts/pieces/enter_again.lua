-- Enters a hold once more, or answers why not: `known` is the count that stands there, as far as the visitor knows, ARGV[4] the
-- count wanted. The end of a script that found a free lock before.
if known == '0' then
    local holder, flaw = holder_of(key)
    return flaw or {number, {0, now, call('PTTL', key), holder}}
end
-- include gone.lua
-- include own_count.lua
call('PEXPIRE', key, ARGV[2])
call('HSET', key, visitor, ARGV[4])
return number * 4194304 + math.min(expiry - now, 4194303)
