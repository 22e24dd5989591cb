
-- include keep_taken.lua

-- include renewals.lua
for i = 1, #KEYS / 2 do
    local key, taken, lease = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i] + 0
    local members, free, what, flaw = members_of(ARGV[2 * i - 1]), pcall('GET', key), nil, nil
    for _, member in ipairs(members) do
        local has = pcall('ZSCORE', taken, member)
        flaw = flaw or type(has) == 'table' and has
        if not has then
            what = 0
        end
    end
    flaw = flaw or type(free) == 'table' and free
    if flaw and not string.find(flaw.err, 'WRONGTYPE', 1, true) then
        return flaw
    elseif flaw or free and not string.find(free, '^%-?%d+$') then
        what = 'a key of another type'
    elseif not free then
        what = 0
    elseif not what then
        local life = call('PTTL', key)
        -- ZREM needs no memory. After this write, a server at maxmemory accepts the following writes of the script.
        pcall('ZREM', taken, '')
        call('ZADD', taken, unpack(scored(members, end_of(now, lease))))
        keep_taken(taken, key, life)
        what = life >= 0 and life < lease and math.max(life, 1)
    end
    if what then
        note(i, what)
    end
end
return {number, result}
