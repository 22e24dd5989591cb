-- Re-enters the hold, or replies why not. `known` is the expected count, `wanted` the count wanted.
if known == '0' then
    local holder, flaw = holder_of(key)
    return flaw or {number, {0, now, call('PTTL', key), holder}}
end
-- include gone.lua
-- include own_count.lua
call('PEXPIRE', key, ARGV[2])
call('HSET', key, visitor, wanted)
return number * 4194304 + math.min(expiry - now, 4194303)
