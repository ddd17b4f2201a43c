-- Closes the functions that rare.lua and contended.lua open. Those with one letter serve requests
-- with this code.

    seldom = {
      addLongLease = addLongLease, removeLongLease = removeLongLease, identify = identify,
      areOver = areOver, timeLeftBeside = timeLeftBeside, hasRoomBeside = hasRoomBeside,
      writeShared = writeShared, hintSharers = hintSharers, conflictingKind = conflictingKind,
      refuse = refuse, yieldIfDue = yieldIfDue,
      R = releaseHold, L = setHolder, v = verify, w = withdraw, b = breakHold,
    }
    return seldom
  end

  held = {acquire = acquireHeld, serveQueue = serveQueue, rare = rare}
  return held
end
